-- Tables of before there was a version: with a lock that is held, and one that somebody waits for.
CREATE TABLE lockkeeper (
  name varbinary(255) NOT NULL PRIMARY KEY,
  version bigint NOT NULL, place smallint NOT NULL, last bigint NOT NULL,
  id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  owner text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  process varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  mode bigint NOT NULL, token bigint NOT NULL, ttl bigint NOT NULL, since bigint NOT NULL,
  expires bigint NOT NULL, identity text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  note text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
CREATE TABLE lockkeeper_claim (
  name varbinary(255) NOT NULL, state smallint NOT NULL, ticket bigint NOT NULL,
  id varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  owner text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  process varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  mode bigint NOT NULL, token bigint NOT NULL, ttl bigint NOT NULL, since bigint NOT NULL,
  expires bigint NOT NULL, identity text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  note text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (name, state, ticket)
) ENGINE = InnoDB;
INSERT INTO lockkeeper VALUES
  ('held', 5, 1, 4000000000000000, 'a', 'a', 'p', 0, 4000000000000000, 60000000, 1, 9000000000000000, 'before', ''),
  ('wanted', 8, 2, 4000000000000000, '', '', '', 0, 0, 0, 0, 9000000000000000, '', '');
INSERT INTO lockkeeper_claim VALUES
  ('wanted', 1, 3999999999999999, 'b', 'b', 'p', 0, 3999999999999999, 60000000, 1, 9000000000000000, 'before', ''),
  ('wanted', 9, 4000000000000000, 'c', 'c', 'p', 0, 0, 60000000, 1, 9000000000000000, 'before', '')
