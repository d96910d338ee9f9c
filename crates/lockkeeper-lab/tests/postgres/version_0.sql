-- Tables of before there was a version: with a lock that is held, and one that somebody waits for.
CREATE TABLE lockkeeper (
  name text COLLATE "C" NOT NULL PRIMARY KEY,
  version bigint NOT NULL, place smallint NOT NULL, last bigint NOT NULL,
  id text NOT NULL, owner text NOT NULL, process text NOT NULL,
  mode bigint NOT NULL, token bigint NOT NULL, ttl bigint NOT NULL, since bigint NOT NULL,
  expires bigint NOT NULL, identity text NOT NULL, note text NOT NULL
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE lockkeeper_claim (
  name text COLLATE "C" NOT NULL, state smallint NOT NULL, ticket bigint NOT NULL,
  id text NOT NULL, owner text NOT NULL, process text NOT NULL,
  mode bigint NOT NULL, token bigint NOT NULL, ttl bigint NOT NULL, since bigint NOT NULL,
  expires bigint NOT NULL, identity text NOT NULL, note text NOT NULL,
  PRIMARY KEY (name, state, ticket)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02);
INSERT INTO lockkeeper VALUES
  ('held', 5, 1, 4000000000000000, 'a', 'a', 'p', 0, 4000000000000000, 60000000, 1, 9000000000000000, 'before', ''),
  ('wanted', 8, 2, 4000000000000000, '', '', '', 0, 0, 0, 0, 9000000000000000, '', '');
INSERT INTO lockkeeper_claim VALUES
  ('wanted', 1, 3999999999999999, 'b', 'b', 'p', 0, 3999999999999999, 60000000, 1, 9000000000000000, 'before', ''),
  ('wanted', 9, 4000000000000000, 'c', 'c', 'p', 0, 0, 60000000, 1, 9000000000000000, 'before', '');
