-- Statements of the store, each under a line with its name. {rows}, {scopes}, {meta} and {versions} are qualified names;
-- {org} is the statement 'org'; {columns} and {now} stand in postgres_sql.py; %s is a parameter, and so is %(name)s.
-- What reads begins with the store's id, the schema's version and the server's time, in one row at least.

-- name: org
SELECT s.scope_id FROM {scopes} s WHERE s.org = %s

-- name: opened
SELECT m.store_id, m.schema_version, {now} FROM {meta} m

-- The keys come as one text, of which a driver is faster to make a parameter than of an array; no key holds a space.
-- name: get_many
SELECT m.store_id, m.schema_version, {now}, r.*
FROM {meta} m LEFT JOIN LATERAL (
  SELECT {columns}, r.value, r.blob FROM {rows} r
  WHERE r.scope_id = {org} AND r.key = ANY(string_to_array(%s, ' '))
) r ON true

-- Asked for by many keys. The limit has each looked up by itself: a server that has no figures of the table yet would
-- rather read the organisation's every row, at each call.
-- name: get_more
SELECT m.*, r.*
FROM (SELECT m.store_id, m.schema_version, {now} FROM {meta} m) m LEFT JOIN LATERAL (
  SELECT r.* FROM {org} o, unnest(string_to_array(%s, ' ')) k (key), LATERAL (
    SELECT {columns}, r.value, r.blob FROM {rows} r WHERE r.scope_id = o.scope_id AND r.key = k.key LIMIT 1
  ) r
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
SELECT m.store_id, m.schema_version, set_config('lock_timeout', %(patience)s, true),
  set_config('idle_in_transaction_session_timeout', %(idle)s, true),
  CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
FROM {meta} m

-- In the keys' order, as every batch does: no two wait for each other. The time of the last row is later than all locks,
-- since it is taken outside of what locks.
-- name: lock
SELECT {now}, r.* FROM (
  SELECT r.scope_id, {columns}, CASE WHEN r.key = ANY(%(sums)b::text[]) THEN r.value END, NULL::bytea FROM {rows} r
  WHERE r.scope_id = (SELECT s.scope_id FROM {scopes} s WHERE s.org = %(org)s) AND r.key = ANY(%(names)b::text[])
  ORDER BY r.key FOR UPDATE OF r
) r

-- For a batch of which no row is there.
-- name: place
SELECT {now}, s.scope_id FROM {meta} m LEFT JOIN {scopes} s ON s.org = %(org)s

-- name: last_version
SELECT CASE WHEN v.is_called THEN v.last_value ELSE 0 END FROM {versions} v

-- Sent after the locks: of two batches that write one row, the later one has the larger version.
-- name: next_version
SELECT nextval('{versions}')

-- name: entry
SELECT {columns}, r.value, r.blob FROM {rows} r WHERE r.scope_id = %s::bigint AND r.key = %s

-- Each key looked up by itself, as in 'get_more'.
-- name: came
SELECT 1 FROM {org} o, unnest(string_to_array(%s, ' ')) k (key), LATERAL (
  SELECT FROM {rows} r WHERE r.scope_id = o.scope_id AND r.key = k.key LIMIT 1
) r LIMIT 1

-- name: add_scope
INSERT INTO {scopes} (org) VALUES (%(org)s) ON CONFLICT (org) DO NOTHING

-- One row; a server plans it in a third of the time that it needs for several.
-- name: insert
INSERT INTO {rows} (scope_id, key, version, batch, created_at, updated_at, format, codec, value, blob)
VALUES (%(scope)s::bigint, %(name)s, currval('{versions}'), %(tag)s::bigint, %(now)s::bigint, %(now)s::bigint, {format},
  {codec}, %(text)s, %(blob)b)

-- In the keys' order: who waits for another's row of the same key has inserted none that comes after it.
-- name: inserts
INSERT INTO {rows} (scope_id, key, version, batch, created_at, updated_at, format, codec, value, blob)
SELECT %(scope)s::bigint, i.key, currval('{versions}'), %(tag)s::bigint, %(now)s::bigint, %(now)s::bigint, {format},
  {codec}, i.value, i.blob
FROM unnest(%(names)b::text[], %(texts)b::text[], %(blobs)b::bytea[]) AS i (key, value, blob)
ORDER BY i.key COLLATE "C"

-- For the transaction alone, of a batch that writes nothing and so gives no version away.
-- name: guards
INSERT INTO {rows} (scope_id, key, version, batch, created_at, updated_at, format, codec, value)
SELECT %(scope)s::bigint, i.key, 0, 0, 0, 0, {format}, {codec}, 'null' FROM unnest(%(names)b::text[]) AS i (key)
ORDER BY i.key COLLATE "C"

-- A row that was locked at the version that the batch was ruled upon. A counter keeps its blob.
-- name: update
UPDATE {rows} SET version = currval('{versions}'), batch = %(tag)s::bigint, updated_at = %(now)s::bigint,
  value = %(text)s, blob = CASE WHEN %(adds)s::boolean THEN blob ELSE %(blob)b END, format = {format}, codec = {codec}
WHERE scope_id = %(scope)s::bigint AND key = %(name)s

-- name: updates
UPDATE {rows} r SET version = currval('{versions}'), batch = %(tag)s::bigint, updated_at = %(now)s::bigint,
  value = u.value, blob = CASE WHEN u.adds THEN r.blob ELSE u.blob END, format = {format}, codec = {codec}
FROM unnest(%(names)b::text[], %(texts)b::text[], %(blobs)b::bytea[], %(adding)b::boolean[]) AS u (key, value, blob, adds)
WHERE r.scope_id = %(scope)s::bigint AND r.key = u.key

-- name: delete
DELETE FROM {rows} WHERE scope_id = %(scope)s::bigint AND key = ANY(%(names)b::text[])

-- name: delete_own
DELETE FROM {rows} WHERE scope_id = {org} AND key = %s

-- name: delete_below
DELETE FROM {rows} d USING (
  SELECT r.scope_id, r.key FROM {rows} r WHERE r.scope_id = {org} AND r.key >= %s AND r.key < %s
  ORDER BY r.key LIMIT %s::bigint FOR UPDATE
) f
WHERE d.scope_id = f.scope_id AND d.key = f.key
