//! `ls`: page by page, so that a store with very many locks need not fit into memory.

use crate::arguments::LsArguments;
use crate::exit::{self, Failure};
use crate::inspect::{ABSENT, OVERDUE, cells};
use crate::table::{Look, Table};
use crate::text::{shortened, visible};
use crate::{json, output};
use lockkeeper::Keeper;
use lockkeeper::backend::{LockView, Page};

/// The longest note in a list; `show` prints all of it.
const NOTE_IN_LIST: usize = 60;

pub(crate) async fn ls(asked: &LsArguments) -> Result<u8, Failure> {
    let keeper = crate::store::open(&asked.store.url()?).await?;
    let look = Look::of_stdout(&asked.manner, asked.wide);
    let mut list = List::new(asked.json, look, output::try_print);
    let found = list.add_all(&keeper, &asked.prefix, Page::MOST).await;
    // Also after an error: what was printed so far is whole.
    if found.is_ok() || !list.is_empty() {
        list.finish()?;
    }
    found?;
    if list.is_empty() && !asked.json && !asked.manner.quiet {
        output::say(&nothing_under(&asked.prefix));
    }
    Ok(exit::FINE)
}

fn nothing_under(prefix: &str) -> String {
    match prefix {
        "" => "no lock is held".to_owned(),
        _ => format!("no lock is held whose name starts with {prefix:?}"),
    }
}

/// A list of which a part is printed at a time.
struct List<P> {
    /// Returns whether somebody still reads.
    print: P,
    /// The table, or `None` for an array of JSON.
    table: Option<Table<8>>,
    begun: bool,
}

impl<P: FnMut(String) -> Result<bool, Failure>> List<P> {
    fn new(json: bool, look: Look, print: P) -> Self {
        let titles = ["NAME", "HOLDER", "MODE", "HELD", "EXPIRES", "TOKEN", "WAITING", "NOTE"];
        let table = (!json).then(|| {
            let table = Table::new("", titles).look(look).alarming(OVERDUE);
            let table = table.cut("NAME", 12).cut("HOLDER", 18).cut("NOTE", 10);
            table.leave_out(&["TOKEN", "MODE", "NOTE", "EXPIRES", "HELD"])
        });
        Self { print, table, begun: false }
    }

    fn is_empty(&self) -> bool {
        !self.begun
    }

    /// As many as `most` are put in order of name, whatever the order of the store is. More than those
    /// come as the store has them; no more than two pages are in memory at once.
    async fn add_all(&mut self, keeper: &Keeper, prefix: &str, most: usize) -> Result<(), Failure> {
        let mut views: Vec<LockView> = Vec::new();
        let mut after: Option<String> = None;
        let mut is_short = true;
        loop {
            let page = keeper.list_page(prefix, after.as_deref(), most).await?;
            views.extend(page.locks);
            is_short &= views.len() <= most;
            after = page.next;
            let is_last = after.is_none();
            if is_short && !is_last {
                continue;
            }
            if is_short {
                put_in_order(&mut views);
            }
            if !self.add(&std::mem::take(&mut views))? || is_last {
                return Ok(());
            }
        }
    }

    /// Returns whether somebody still reads.
    fn add(&mut self, views: &[LockView]) -> Result<bool, Failure> {
        if views.is_empty() {
            return Ok(true);
        }
        let begun = std::mem::replace(&mut self.begun, true);
        let text = match &mut self.table {
            Some(table) => table.lay_out(&rows(views)),
            None => {
                let array = json::line(&views);
                let parts = array.trim_end().trim_start_matches('[');
                let parts = parts.strip_suffix(']').unwrap_or(parts);
                format!("{}{parts}", if begun { "," } else { "[" })
            }
        };
        (self.print)(text)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        match (&self.table, self.begun) {
            (Some(_), _) => Ok(()),
            (None, true) => (self.print)("]\n".into()).map(drop),
            (None, false) => (self.print)("[]\n".into()).map(drop),
        }
    }
}

/// Each once and in order of name.
fn put_in_order(views: &mut Vec<LockView>) {
    views.sort_by(|one, two| one.name.cmp(&two.name));
    views.dedup_by(|one, two| one.name == two.name);
}

/// One line per holder; the first line of each name shows the number of waiters.
fn rows(views: &[LockView]) -> Vec<[String; 8]> {
    let mut rows = Vec::new();
    for view in views {
        let name = visible(view.name.as_str());
        let mut waiting = match view.waiters.len() {
            0 => ABSENT.to_owned(),
            number => number.to_string(),
        };
        for holder in &view.holders {
            let [identity, mode, held, expires, token, note] = cells(holder);
            let waiting = std::mem::replace(&mut waiting, ABSENT.to_owned());
            let note = shortened(&note, NOTE_IN_LIST);
            rows.push([name.clone(), identity, mode, held, expires, token, waiting, note]);
        }
        if view.holders.is_empty() {
            let nobody = || ABSENT.to_owned();
            let (none, no_note) = (nobody(), String::new());
            rows.push([name, none, nobody(), nobody(), nobody(), nobody(), waiting, no_note]);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::MultiGuard;

    const NAMES: [&str; 5] = ["a", "b/long-name", "c", "d", "e/the-longest-name"];

    async fn store() -> (Keeper, MultiGuard) {
        let keeper = lockkeeper::connect("memory:").await.unwrap();
        let held = keeper.multi(NAMES).acquire().await.unwrap();
        (keeper, held)
    }

    /// What is printed, a piece for each time.
    async fn printed(keeper: &Keeper, json: bool, most: usize) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut list = List::new(json, Look::default(), |text| {
            pieces.push(text);
            Ok(true)
        });
        list.add_all(keeper, "", most).await.unwrap();
        list.finish().unwrap();
        drop(list);
        pieces
    }

    fn names_in_json(pieces: &[String]) -> Vec<String> {
        let list: serde_json::Value = serde_json::from_str(&pieces.concat()).unwrap();
        let names = list.as_array().unwrap().iter().map(|view| view["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn json_is_one_array_however_many_pages_it_comes_from() {
        let (keeper, held) = store().await;
        for (most, pieces) in [(1, 5), (2, 3), (4, 2), (5, 2), (100, 2)] {
            let printed = printed(&keeper, true, most).await;
            assert_eq!(names_in_json(&printed), NAMES, "{most}");
            assert_eq!(printed.len(), pieces, "{most}: {printed:?}");
            assert!(printed.concat().ends_with("]\n"));
        }
        held.release().await.unwrap();
        assert_eq!(printed(&keeper, true, 2).await, ["[]\n"]);
    }

    #[test]
    fn what_comes_twice_or_in_another_order_is_put_right() {
        let name = |name| LockView::new(lockkeeper::Name::new(name).unwrap());
        let mut views = ["b", "a", "c", "a", "b"].map(name).to_vec();
        put_in_order(&mut views);
        assert_eq!(views, ["a", "b", "c"].map(name));
    }

    #[tokio::test]
    async fn columns_of_later_pages_stand_under_those_of_the_first() {
        let (keeper, _held) = store().await;
        let pieces = printed(&keeper, false, 1).await;
        assert_eq!(pieces.len(), 4, "{pieces:?}");
        let text = pieces.concat();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 6, "one title: {text}");
        let column = lines[0].find("HOLDER").unwrap();
        for line in &lines[1..5] {
            assert!(line[column..].contains('@') && &line[column - 1..column] == " ", "{text}");
        }
        assert!(lines[5].starts_with(NAMES[4]), "{text}");
    }

    #[tokio::test]
    async fn nothing_more_is_read_when_nobody_reads() {
        let (keeper, _held) = store().await;
        let mut pieces = 0;
        let mut list = List::new(false, Look::default(), |_| {
            pieces += 1;
            Ok(false)
        });
        list.add_all(&keeper, "", 1).await.unwrap();
        assert!(!list.is_empty());
        assert_eq!(pieces, 1);
    }
}
