-- One row: what is true of the whole store.
CREATE TABLE gnl_meta (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  schema_version INTEGER NOT NULL,
  store_id TEXT NOT NULL,
  sequence INTEGER NOT NULL,  -- last version given to a batch; never goes back, also after deletes
  clock INTEGER NOT NULL      -- latest time written, ms: a clock set back must not make ages negative
);

-- Organisations; the unscoped rows have scope 0 and no line here.
CREATE TABLE gnl_scopes (
  scope_id INTEGER PRIMARY KEY,
  org TEXT NOT NULL UNIQUE
);

-- Value and blob stand last: what stands before them is read without touching their overflow pages.
CREATE TABLE gnl_rows (
  row_id INTEGER PRIMARY KEY,
  scope_id INTEGER NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  batch INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  format INTEGER NOT NULL,    -- of the row's columns
  codec INTEGER NOT NULL,     -- of value and blob: 0 = JSON text and plain bytes
  value TEXT NOT NULL,
  blob BLOB,
  UNIQUE (scope_id, key)
);
