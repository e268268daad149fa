-- Statements of the store, each under a line with its name. {rows}, {scopes}, {meta} and {versions} are qualified names;
-- {org} is the statement 'org'; {columns} and {now} stand in postgres_sql.py; %s is a parameter.
-- What reads begins with the store's id, the schema's version and the server's time, in one row at least.

-- name: org
SELECT s.scope_id FROM {scopes} s WHERE s.org = %s

-- name: opened
SELECT m.store_id, m.schema_version, {now} FROM {meta} m

-- name: get_many
SELECT m.store_id, m.schema_version, {now}, r.*
FROM {meta} m LEFT JOIN LATERAL (
  SELECT {columns}, r.value, r.blob FROM {rows} r WHERE r.scope_id = {org} AND r.key = ANY(%s::text[])
) r ON true

-- name: scopes
SELECT m.store_id, m.schema_version, {now}, o.org
FROM {meta} m LEFT JOIN LATERAL (
  SELECT s.org FROM {scopes} s
  WHERE (%s::text IS NULL OR s.org > %s) AND EXISTS (SELECT 1 FROM {rows} r WHERE r.scope_id = s.scope_id)
  ORDER BY s.org LIMIT %s::bigint
) o ON true

-- One page. Sizes are summed before values are read, so that what lies beyond the page's bytes stays on the server. One
-- row more than fits is told of, without its value: then there is another page.
-- name: page
SELECT m.store_id, m.schema_version, {now}, p.*
FROM {meta} m LEFT JOIN LATERAL (
  SELECT {columns}, CASE WHEN r.fits THEN r.value END, CASE WHEN r.fits THEN r.blob END, r.fits
  FROM (
    SELECT r.*, lag(r.fits, 1, true) OVER (ORDER BY r.key {order}) AS due
    FROM (
      SELECT r.*,
        row_number() OVER ordered <= %s::bigint AND sum(r.size) OVER ordered - r.size < %s::bigint AS fits
      FROM (SELECT r.* FROM ({found}) r ORDER BY r.key {order} LIMIT %s::bigint) r
      WINDOW ordered AS (ORDER BY r.key {order} ROWS UNBOUNDED PRECEDING)
    ) r
  ) r
  WHERE r.due
) p ON true

-- The two parts of a page are two ranges of one index: the row at the prefix, and what lies below it. Each has its own
-- order and bound, without which the planner would rather read the whole table.
-- name: below
SELECT {columns}, r.value, {blob} AS blob, {size} AS size FROM {rows} r
WHERE r.scope_id = {org} AND r.key >= %s AND r.key < %s{newer} ORDER BY r.key {order} LIMIT %s::bigint

-- name: own
SELECT {columns}, r.value, {blob} AS blob, {size} AS size FROM {rows} r
WHERE r.scope_id = {org} AND r.key = %s{newer}

-- For the transaction alone. Who is frozen between two statements must not keep rows locked; and what is acknowledged is
-- on the server's disk, whatever its default is.
-- name: settings
SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true),
  CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END

-- In the keys' order, as every batch does: no two wait for each other.
-- name: lock
SELECT {columns}, CASE WHEN r.key = ANY(%s::text[]) THEN r.value END, NULL::bytea FROM {rows} r
WHERE r.scope_id = {org} AND r.key = ANY(%s::text[]) ORDER BY r.key FOR UPDATE OF r

-- name: head
SELECT m.store_id, m.schema_version, {now}, s.scope_id, CASE WHEN v.is_called THEN v.last_value ELSE 0 END
FROM {versions} v, {meta} m LEFT JOIN {scopes} s ON s.org = %s

-- Sent after the locks: of two batches that write one row, the later one has the larger version.
-- name: next_version
SELECT nextval('{versions}')

-- name: entry
SELECT {columns}, r.value, r.blob FROM {rows} r WHERE r.scope_id = %s::bigint AND r.key = %s

-- name: add_scope
INSERT INTO {scopes} (org) VALUES (%s) ON CONFLICT (org) DO NOTHING

-- name: insert
INSERT INTO {rows} (scope_id, key, version, batch, created_at, updated_at, format, codec, value, blob)
VALUES (%s::bigint, %s, currval('{versions}'), %s::bigint, %s::bigint, %s::bigint, {format}, {codec}, %s, %b)

-- A row that is there for the length of its transaction alone.
-- name: guard
INSERT INTO {rows} (scope_id, key, version, batch, created_at, updated_at, format, codec, value)
VALUES (%s::bigint, %s, 0, 0, 0, 0, {format}, {codec}, 'null')

-- name: update
UPDATE {rows} SET version = currval('{versions}'), batch = %s::bigint, updated_at = %s::bigint, value = %s, blob = %b,
  format = {format}, codec = {codec}
WHERE scope_id = %s::bigint AND key = %s

-- name: update_sum
UPDATE {rows} SET version = currval('{versions}'), batch = %s::bigint, updated_at = %s::bigint, value = %s
WHERE scope_id = %s::bigint AND key = %s

-- name: delete
DELETE FROM {rows} WHERE scope_id = %s::bigint AND key = ANY(%s::text[])

-- name: delete_own
DELETE FROM {rows} WHERE scope_id = {org} AND key = %s

-- name: delete_below
DELETE FROM {rows} d USING (
  SELECT r.scope_id, r.key FROM {rows} r WHERE r.scope_id = {org} AND r.key >= %s AND r.key < %s
  ORDER BY r.key LIMIT %s::bigint FOR UPDATE
) f
WHERE d.scope_id = f.scope_id AND d.key = f.key
