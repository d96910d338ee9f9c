//! The two tables: their names, how they are made, and the rights that are enough.

use crate::backend::support::options::config;
use crate::error::{Error, ErrorKind, Result};

/// The version of the tables that this library reads and writes; see [`migration`](super::migration)
/// for how earlier ones become it.
pub(super) const VERSION: i64 = 1;
/// The row that says which version of the tables these are; in `last`.
pub(super) const SCHEMA_ROW: &str = "\u{1}schema";

/// Which kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
}

/// The tables of one recipe, and the statements that make them, with `;` between them.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) tables: Vec<String>,
    pub(super) definition: String,
}

impl Made {
    /// What a database administrator runs where programs may not create tables.
    pub(super) fn script(&self, dialect: Dialect, schema: Option<&str>) -> String {
        let definition = self.definition.trim_end_matches([';', '\n', ' ']);
        let mut text = format!("-- The tables of lockkeeper, version {VERSION}.\n{definition};\n");
        text += "-- The rights that are enough. Put the role of your program for app.\n";
        match dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                if let Some(schema) = schema {
                    text += &format!("GRANT USAGE ON SCHEMA {schema} TO app;\n");
                }
                let tables = self.tables.join(", ");
                text += &format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO app;\n");
            }
            #[cfg(feature = "mysql")]
            Dialect::Mysql => {
                let _ = schema;
                for table in &self.tables {
                    text += &format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;\n");
                }
            }
        }
        text
    }
}

/// The two tables as they stand in statements.
#[derive(Debug, Clone)]
pub(super) struct Tables {
    /// One row per name; also heartbeats, sequences and the version of the tables.
    pub(super) names: String,
    /// One row per claim on a name that has several.
    pub(super) claims: String,
}

/// The columns of a claim, in both tables, in the order of every statement.
pub(super) const CLAIM: &str =
    "id, owner, process, mode, token, ttl, since, expires, identity, note";

impl Tables {
    pub(super) fn new(schema: Option<&str>, table: &str) -> Self {
        let prefix = schema.map(|schema| format!("{schema}.")).unwrap_or_default();
        Self { names: format!("{prefix}{table}"), claims: format!("{prefix}{table}_claim") }
    }

    /// The statements that make the tables, each to be run once.
    pub(super) fn create(&self, dialect: Dialect) -> Vec<String> {
        let Self { names, claims } = self;
        let (name, word, text, last) = match dialect {
            #[cfg(feature = "postgres")]
            // Room for new versions of a row beside the old ones, and an early clean-up of those.
            Dialect::Postgres => (
                "text COLLATE \"C\"",
                "text",
                "text",
                " WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02)",
            ),
            #[cfg(feature = "mysql")]
            // Bytes, so that names are told apart to the letter.
            Dialect::Mysql => (
                "varbinary(255)",
                "varchar(64) CHARACTER SET ascii COLLATE ascii_bin",
                "text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                " ENGINE = InnoDB",
            ),
        };
        let claim = format!(
            "id {word} NOT NULL, owner {text} NOT NULL, process {word} NOT NULL,\n  \
             mode bigint NOT NULL, token bigint NOT NULL, ttl bigint NOT NULL, since bigint NOT \
             NULL,\n  expires bigint NOT NULL, identity {text} NOT NULL, note {text} NOT NULL"
        );
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {names} (\n  name {name} NOT NULL PRIMARY KEY,\n  \
                 version bigint NOT NULL, place smallint NOT NULL, last bigint NOT NULL, waiting \
                 bigint NOT NULL,\n  {claim}\n){last}"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {claims} (\n  name {name} NOT NULL, state smallint NOT \
                 NULL, ticket bigint NOT NULL,\n  {claim},\n  PRIMARY KEY (name, state, ticket)\n)\
                 {last}"
            ),
            self.mark(dialect, VERSION),
        ]
    }

    /// Writes down the version of tables that have no such mark.
    pub(super) fn mark(&self, dialect: Dialect, version: i64) -> String {
        let (names, row) = (&self.names, literal(dialect, SCHEMA_ROW));
        format!(
            "INSERT INTO {names} (name, version, place, last, waiting, {CLAIM})\n  SELECT {row}, 0, \
             0, {version}, 0, '', '', '', 0, 0, 0, 0, {}, '', ''\n  WHERE NOT EXISTS (SELECT 1 FROM \
             {names} existing WHERE existing.name = {row})",
            // Never cleaned away.
            i64::MAX
        )
    }

    /// Asks for the mark; no row where there is none.
    pub(super) fn ask_mark(&self, dialect: Dialect) -> String {
        let (names, row) = (&self.names, literal(dialect, SCHEMA_ROW));
        format!("SELECT last FROM {names} WHERE name = {row}")
    }

    /// The tables, and what makes them.
    pub(super) fn made(&self, dialect: Dialect) -> Made {
        let Self { names, claims } = self;
        let definition = self.create(dialect).join(";\n");
        Made { tables: vec![names.clone(), claims.clone()], definition }
    }

    /// The table with the database's own auto-increment column. It is made when it is first asked for,
    /// so that nobody who wants locks only has to have it.
    pub(super) fn ids(&self) -> String {
        format!("{}_ids", self.names)
    }

    /// The statement that makes it.
    pub(super) fn create_ids(&self, dialect: Dialect) -> String {
        let ids = self.ids();
        match dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => format!(
                "CREATE TABLE IF NOT EXISTS {ids} (\n  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY \
                 KEY, taken boolean NOT NULL\n)"
            ),
            #[cfg(feature = "mysql")]
            Dialect::Mysql => format!(
                "CREATE TABLE IF NOT EXISTS {ids} (\n  id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY\n) \
                 ENGINE = InnoDB"
            ),
        }
    }

    /// What a database administrator runs where programs may not create tables, and want numbers of
    /// the database's own.
    pub(super) fn ids_script(&self, dialect: Dialect) -> String {
        let (ids, made) = (self.ids(), self.create_ids(dialect));
        format!("{made};\nGRANT SELECT, INSERT, UPDATE, DELETE ON {ids} TO app;\n")
    }

    /// The same as comments at the end of a script: not everybody wants it.
    pub(super) fn optional_script(&self, dialect: Dialect) -> String {
        let script = self.ids_script(dialect);
        let lines = script.lines().map(|line| format!("-- {line}\n"));
        let about = "-- Only for ids of the database's own auto-increment column:\n".to_owned();
        std::iter::once(about).chain(lines).collect()
    }

    /// Statements that do nothing, and fail where a right or a column is missing.
    pub(super) fn probes(&self) -> Vec<String> {
        let Self { names, claims } = self;
        let of_names = format!("name, version, place, last, waiting, {CLAIM}");
        let of_claims = format!("name, state, ticket, {CLAIM}");
        let mut probes = Vec::new();
        for (table, columns) in [(names, of_names), (claims, of_claims)] {
            probes.push(format!("SELECT {columns} FROM {table} WHERE 1 = 0"));
            probes.push(format!(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE 1 = 0"
            ));
            probes.push(format!("UPDATE {table} SET token = token WHERE 1 = 0"));
            probes.push(format!("DELETE FROM {table} WHERE 1 = 0"));
        }
        probes
    }
}

/// A text of ours that stands in a statement; a control character and letters.
pub(super) fn literal(dialect: Dialect, text: &str) -> String {
    match dialect {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => format!("E'{}'", text.replace('\u{1}', "\\x01")),
        #[cfg(feature = "mysql")]
        Dialect::Mysql => super::client::bytes(text.as_bytes()),
    }
}

/// What the row with the version says: `None` where it is missing.
pub(super) fn check_version(version: Option<i64>, at: &str, table: &str) -> Result<()> {
    match version {
        Some(VERSION) => Ok(()),
        Some(newer) if newer > VERSION => Err(Error::new(
            ErrorKind::Store,
            format!(
                "the tables at {at} were made by a later lockkeeper (version {newer}, we know \
                 {VERSION}): upgrade this program, or name other tables with ?table=NAME"
            ),
        )),
        _ => Err(not_ours(at, table)),
    }
}

/// The error for a table of our name that is not ours. Nothing was changed in it.
pub(super) fn not_ours(at: &str, table: &str) -> Error {
    config(format!(
        "{at} has a table {table} that lockkeeper did not make: name another with ?table=NAME"
    ))
}
