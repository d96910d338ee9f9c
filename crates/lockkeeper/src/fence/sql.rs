//! Statements by which rows of any table refuse stale holders.

#[cfg(any(test, feature = "mysql", feature = "postgres", feature = "sqlite"))]
use super::Stale;
#[cfg(any(test, feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::claim::FencingToken;
use crate::error::{Error, ErrorKind, Result};
use std::fmt::Write;

/// Whose SQL a statement is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite: names in `` `x` ``, values as `?1`.
    Sqlite,
    /// PostgreSQL: names in `"x"`, values as `$1`.
    Postgres,
    /// MariaDB and MySQL: names in `` `x` ``, values as `?`.
    MySql,
}

/// The longest name of a table or column, in bytes: that of PostgreSQL.
const LONGEST_NAME: usize = 63;

/// A table whose rows refuse stale holders: by a column `fence BIGINT NOT NULL DEFAULT 0` beside its
/// key.
///
/// Names are quoted, so that any will do, and case counts where it does in the database: write them as
/// the table has them. A dot separates a schema from its table.
///
/// A statement that changes no row was refused: a larger token was here. So does one whose key is not
/// there: the row has to be inserted before the lock is of any use, with 0 as its fence. How MariaDB and
/// MySQL count rows is said at [`SQL_ENTER`](super::SQL_ENTER).
///
/// ```
/// use lockkeeper::fence::{Dialect, FencedTable};
///
/// let stock = FencedTable::new("shop.stock", "sku")?;
/// assert_eq!(
///     stock.update(Dialect::Postgres, &["left", "note"])?,
///     r#"UPDATE "shop"."stock" SET "left" = $1, "note" = $2, "fence" = $3 WHERE "sku" = $4 AND "fence" <= $5"#
/// );
/// assert_eq!(
///     stock.enter(Dialect::MySql),
///     "UPDATE `shop`.`stock` SET `fence` = ? WHERE `sku` = ? AND `fence` <= ?"
/// );
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedTable {
    table: String,
    key: String,
    fence: String,
}

impl FencedTable {
    /// The table `table`, whose rows are told apart by the column `key`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is empty, longer than 63 bytes or has a control character
    /// in it.
    pub fn new(table: impl Into<String>, key: impl Into<String>) -> Result<Self> {
        let (table, key) = (table.into(), key.into());
        table.split('.').try_for_each(check)?;
        check(&key)?;
        Ok(Self { table, key, fence: "fence".into() })
    }

    /// The same with another column for the largest token, instead of `fence`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fence_column(self, column: impl Into<String>) -> Result<Self> {
        let fence = column.into();
        check(&fence)?;
        Ok(Self { fence, ..self })
    }

    /// Shows the token of a new holder: the first statement under a lock, before anything is read. Its
    /// values are, in order: the token, the key, the token again.
    pub fn enter(&self, dialect: Dialect) -> String {
        self.statement(dialect, &[])
    }

    /// Changes `columns` of a row, unless the holder is stale. Its values are, in order: those of the
    /// columns, the token, the key, the token again.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for names as [`new`](Self::new) refuses, and for the key and the fence
    /// among them.
    pub fn update(&self, dialect: Dialect, columns: &[&str]) -> Result<String> {
        for column in columns {
            check(column)?;
            if [&self.key, &self.fence].iter().any(|own| own.eq_ignore_ascii_case(column)) {
                let message = format!("the column {column:?} is not for the holder to change");
                return Err(Error::new(ErrorKind::Config, message));
            }
        }
        Ok(self.statement(dialect, columns))
    }

    /// Reads the fence of a row, past what its transaction saw before. Its value is the key.
    #[cfg(any(test, feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(super) fn seen(&self, dialect: Dialect) -> String {
        let (table, key, fence) = (self.table(dialect), &self.key, &self.fence);
        let mut text =
            format!("SELECT {} FROM {table} WHERE {} = ", dialect.name(fence), dialect.name(key));
        dialect.place(&mut text, 1);
        if dialect == Dialect::MySql {
            // A plain read would tell what its transaction saw when it began.
            text.push_str(" FOR UPDATE");
        }
        text
    }

    fn statement(&self, dialect: Dialect, columns: &[&str]) -> String {
        let mut text = format!("UPDATE {} SET ", self.table(dialect));
        let mut count = 0;
        let mut place = |text: &mut String| {
            count += 1;
            dialect.place(text, count);
        };
        for column in columns.iter().copied().chain([&*self.fence]) {
            text += &dialect.name(column);
            text += " = ";
            place(&mut text);
            text += ", ";
        }
        text.truncate(text.len() - 2);
        text += &format!(" WHERE {} = ", dialect.name(&self.key));
        place(&mut text);
        text += &format!(" AND {} <= ", dialect.name(&self.fence));
        place(&mut text);
        text
    }

    fn table(&self, dialect: Dialect) -> String {
        let parts: Vec<String> = self.table.split('.').map(|part| dialect.name(part)).collect();
        parts.join(".")
    }

    /// What it means that a statement of `token` changed no row, where `seen` is the fence that the row
    /// has now.
    #[cfg(any(test, feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(super) fn refusal(&self, token: FencingToken, seen: Option<i64>) -> Error {
        match seen.map(FencingToken::try_from) {
            Some(Ok(seen)) if seen > token => Stale { token, seen }.to_error(),
            Some(_) => Error::new(
                ErrorKind::Lost,
                format!("token {token} was refused: a larger one was here; stop the work"),
            ),
            None => Error::new(
                ErrorKind::Config,
                format!(
                    "{:?} has no row with this {:?}: insert it, with 0 as its {}, before it is locked",
                    self.table, self.key, self.fence
                ),
            ),
        }
    }
}

impl Dialect {
    fn name(self, name: &str) -> String {
        // In SQLite a name in double quotes that is none becomes a text.
        let quote = if self == Self::Postgres { "\"" } else { "`" };
        format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
    }

    fn place(self, text: &mut String, number: usize) {
        // Writing to a text does not fail.
        let _ = match self {
            Self::Sqlite => write!(text, "?{number}"),
            Self::Postgres => write!(text, "${number}"),
            Self::MySql => write!(text, "?"),
        };
    }
}

fn check(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        let message = format!(
            "{name:?} is not the name of a table or column: 1 to {LONGEST_NAME} bytes without \
             control characters"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_whatever_is_in_them() {
        let odd = FencedTable::new(r#"a"b`c"#, "x; DROP TABLE y").unwrap();
        assert_eq!(
            odd.enter(Dialect::Postgres),
            r#"UPDATE "a""b`c" SET "fence" = $1 WHERE "x; DROP TABLE y" = $2 AND "fence" <= $3"#
        );
        assert_eq!(
            odd.enter(Dialect::Sqlite),
            r#"UPDATE `a"b``c` SET `fence` = ?1 WHERE `x; DROP TABLE y` = ?2 AND `fence` <= ?3"#
        );
        assert_eq!(
            odd.seen(Dialect::MySql),
            "SELECT `fence` FROM `a\"b``c` WHERE `x; DROP TABLE y` = ? FOR UPDATE"
        );
    }

    #[test]
    fn values_come_in_one_order_in_every_dialect() {
        let table = FencedTable::new("t", "id").unwrap().fence_column("seen").unwrap();
        let update = |dialect| table.update(dialect, &["a", "b"]).unwrap();
        assert_eq!(
            update(Dialect::Sqlite),
            "UPDATE `t` SET `a` = ?1, `b` = ?2, `seen` = ?3 WHERE `id` = ?4 AND `seen` <= ?5"
        );
        assert_eq!(
            update(Dialect::MySql),
            "UPDATE `t` SET `a` = ?, `b` = ?, `seen` = ? WHERE `id` = ? AND `seen` <= ?"
        );
    }

    #[test]
    fn what_is_no_name_is_refused_and_so_are_the_columns_of_the_fence() {
        let long = "x".repeat(64);
        for wrong in ["", "a\0b", "a\nb", &*long, "a.", ".a", "a..b"] {
            assert!(FencedTable::new(wrong, "id").is_err(), "{wrong:?}");
        }
        assert!(FencedTable::new("t", "").is_err());
        let table = FencedTable::new("t", "id").unwrap();
        for own in ["id", "ID", "fence", "Fence", ""] {
            let refused = table.update(Dialect::Sqlite, &["a", own]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config, "{own:?}");
        }
    }

    #[test]
    fn a_refusal_tells_a_stale_token_from_a_row_that_is_not_there() {
        let table = FencedTable::new("t", "id").unwrap();
        let token = FencingToken::new(5).unwrap();
        let stale = table.refusal(token, Some(7));
        assert_eq!(stale.kind(), ErrorKind::Lost);
        assert!(stale.to_string().contains("7 was here already"), "{stale}");
        assert_eq!(table.refusal(token, Some(0)).kind(), ErrorKind::Lost);
        assert_eq!(table.refusal(token, None).kind(), ErrorKind::Config);
    }
}
