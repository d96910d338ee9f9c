//! What the screen is about: the locks, their order, which is selected, what is being asked.

use super::keys::Key;
use lockkeeper::FencingToken;
use lockkeeper::backend::{HolderView, LockView};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// The order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Whose first waiter waits longest.
    LongestWait,
    /// How many wait.
    Waiters,
    /// What is held longest.
    LongestHeld,
    Name,
}

impl Sort {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::LongestWait => "longest wait",
            Self::Waiters => "most waiters",
            Self::LongestHeld => "longest held",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::LongestWait => Self::Waiters,
            Self::Waiters => Self::LongestHeld,
            Self::LongestHeld => Self::Name,
            Self::Name => Self::LongestWait,
        }
    }
}

/// Who waits longest.
pub(super) fn longest_wait(lock: &LockView) -> Duration {
    lock.waiters.iter().map(|waiter| waiter.waiting_for).max().unwrap_or_default()
}

/// Who holds longest.
pub(super) fn longest_held(lock: &LockView) -> Duration {
    lock.holders.iter().map(|holder| holder.held_for).max().unwrap_or_default()
}

/// What is on the screen.
#[derive(Debug)]
pub(super) enum Page {
    List,
    /// Everyone at one lock; the first line that is shown.
    Detail {
        name: String,
        from: usize,
    },
    /// Whether to break, and why; over the list.
    Break(Question),
}

/// A question that is being answered.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) name: String,
    pub(super) holder: HolderView,
    pub(super) token: FencingToken,
    /// As far as it is typed in.
    pub(super) reason: String,
}

/// What is to be done outside.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    Break { name: String, token: FencingToken, reason: String },
}

#[derive(Debug)]
pub(super) struct Model {
    /// The store, for people.
    pub(super) store: String,
    /// In the order of the list.
    pub(super) locks: Vec<LockView>,
    /// Whether there are more than are shown.
    pub(super) is_cut: bool,
    pub(super) sort: Sort,
    pub(super) page: Page,
    /// The selected name, wherever it stands now.
    selected: Option<String>,
    /// What happened last, or is wrong.
    pub(super) message: String,
    /// How many lines a page of the list has.
    pub(super) rows: usize,
    /// The first line of the list that is shown.
    pub(super) from: usize,
}

impl Model {
    pub(super) fn new(store: String) -> Self {
        Self {
            store,
            locks: Vec::new(),
            is_cut: false,
            sort: Sort::LongestWait,
            page: Page::List,
            selected: None,
            message: String::new(),
            rows: 1,
            from: 0,
        }
    }

    /// What was seen now.
    pub(super) fn update(&mut self, locks: BTreeMap<String, LockView>, is_cut: bool) {
        self.locks = locks.into_values().collect();
        self.is_cut = is_cut;
        self.put_in_order();
    }

    fn put_in_order(&mut self) {
        let sort = self.sort;
        // By name first, which decides between equals.
        self.locks.sort_by(|one, two| one.name.cmp(&two.name));
        match sort {
            Sort::LongestWait => self.locks.sort_by_key(|it| Reverse(longest_wait(it))),
            Sort::Waiters => self.locks.sort_by_key(|it| Reverse(it.waiters.len())),
            Sort::LongestHeld => self.locks.sort_by_key(|it| Reverse(longest_held(it))),
            Sort::Name => {}
        }
        self.keep_in_sight();
    }

    /// The line of the list that is selected.
    pub(super) fn selection(&self) -> usize {
        let name = self.selected.as_deref();
        let at = name.and_then(|name| self.locks.iter().position(|it| it.name.as_str() == name));
        at.unwrap_or(0)
    }

    pub(super) fn lock(&self, name: &str) -> Option<&LockView> {
        self.locks.iter().find(|it| it.name.as_str() == name)
    }

    fn select(&mut self, at: usize) {
        let at = at.min(self.locks.len().saturating_sub(1));
        self.selected = self.locks.get(at).map(|it| it.name.to_string());
        self.keep_in_sight();
    }

    /// So many lines are shown from now on.
    pub(super) fn resize(&mut self, rows: usize) {
        self.rows = rows.max(1);
        self.keep_in_sight();
    }

    fn keep_in_sight(&mut self) {
        let at = self.selection();
        let last = self.locks.len().saturating_sub(self.rows);
        self.from = self.from.min(at).max((at + 1).saturating_sub(self.rows)).min(last);
    }

    pub(super) fn press(&mut self, key: Key) -> Wish {
        match std::mem::replace(&mut self.page, Page::List) {
            Page::List => self.press_in_list(key),
            Page::Detail { name, from } => self.press_in_detail(key, name, from),
            Page::Break(question) => self.press_in_question(key, question),
        }
    }

    fn press_in_list(&mut self, key: Key) -> Wish {
        let at = self.selection();
        match key {
            Key::Char('q') | Key::Escape => return Wish::Quit,
            Key::Char('s') => {
                self.sort = self.sort.next();
                self.put_in_order();
            }
            Key::Up | Key::Char('k') => self.select(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(at + 1),
            Key::PageUp => self.select(at.saturating_sub(self.rows)),
            Key::PageDown => self.select(at + self.rows),
            Key::Home => self.select(0),
            Key::End => self.select(usize::MAX),
            Key::Enter => {
                if let Some(lock) = self.locks.get(at) {
                    self.page = Page::Detail { name: lock.name.to_string(), from: 0 };
                }
            }
            Key::Char('b') => self.ask_to_break(at),
            _ => {}
        }
        Wish::Nothing
    }

    /// The lock is asked about as it is shown: a later holder is left alone.
    fn ask_to_break(&mut self, at: usize) {
        let Some(lock) = self.locks.get(at) else { return };
        let name = lock.name.to_string();
        let holder = lock.holders.iter().find_map(|it| Some((it.clone(), it.token?)));
        match holder {
            Some((holder, token)) => {
                self.message.clear();
                let reason = String::new();
                self.page = Page::Break(Question { name, holder, token, reason });
            }
            None => self.message = format!("{name:?} has no holder that could be broken"),
        }
    }

    fn press_in_detail(&mut self, key: Key, name: String, from: usize) -> Wish {
        let from = match key {
            Key::Char('q') | Key::Escape | Key::Enter => return Wish::Nothing,
            Key::Char('b') => {
                let at = self.locks.iter().position(|it| it.name.as_str() == name);
                if let Some(at) = at {
                    self.ask_to_break(at);
                }
                return Wish::Nothing;
            }
            Key::Up | Key::Char('k') => from.saturating_sub(1),
            Key::Down | Key::Char('j') => from + 1,
            Key::PageUp => from.saturating_sub(self.rows),
            Key::PageDown => from + self.rows,
            Key::Home => 0,
            _ => from,
        };
        let lines = self.lock(&name).map_or(0, |it| it.holders.len() + it.waiters.len() + 4);
        self.page = Page::Detail { name, from: from.min(lines.saturating_sub(1)) };
        Wish::Nothing
    }

    fn press_in_question(&mut self, key: Key, mut question: Question) -> Wish {
        match key {
            Key::Escape => {
                self.message = format!("{:?} was left as it is", question.name);
                return Wish::Nothing;
            }
            Key::Enter if !question.reason.trim().is_empty() => {
                let Question { name, token, reason, .. } = question;
                self.message = format!("breaking {name:?} …");
                return Wish::Break { name, token, reason };
            }
            Key::Backspace => drop(question.reason.pop()),
            Key::Char(c) if !c.is_control() && question.reason.len() < LONGEST_REASON => {
                question.reason.push(c);
            }
            _ => {}
        }
        self.page = Page::Break(question);
        Wish::Nothing
    }
}

/// In bytes; the library takes up to a thousand.
const LONGEST_REASON: usize = 500;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use lockkeeper::backend::WaiterView;
    use lockkeeper::{Mode, Name, Owner};

    /// A lock that is held for so many seconds, with waiters who wait for so many.
    pub(in crate::watch) fn lock(name: &str, held: u64, waiting: &[u64]) -> LockView {
        let mut view = LockView::new(Name::new(name).unwrap());
        let mut holder = HolderView::new(Owner::new("a").unwrap(), Mode::Exclusive);
        holder.identity = "root@vm pid 4242".into();
        holder.note = "backup.sh --full 夜间".into();
        holder.held_for = Duration::from_secs(held);
        holder.token = FencingToken::new(1_794_779_023_296_693);
        view.holders.push(holder);
        for seconds in waiting {
            let mut waiter = WaiterView::new(Owner::new("b").unwrap(), Mode::Exclusive);
            waiter.identity = "root@vm pid 5".into();
            waiter.waiting_for = Duration::from_secs(*seconds);
            view.waiters.push(waiter);
        }
        view
    }

    pub(in crate::watch) fn model(locks: &[LockView]) -> Model {
        let mut model = Model::new("sqlite:/tmp/locks.db".into());
        model.resize(3);
        model.update(locks.iter().map(|it| (it.name.to_string(), it.clone())).collect(), false);
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model.locks.iter().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn what_waits_longest_is_on_top_and_s_goes_through_the_orders() {
        let mut model = model(&[lock("a", 9, &[]), lock("b", 5, &[7]), lock("c", 1, &[3, 2])]);
        assert_eq!(names(&model), ["b", "c", "a"]);
        for (sort, order) in [
            (Sort::Waiters, ["c", "b", "a"]),
            (Sort::LongestHeld, ["a", "b", "c"]),
            (Sort::Name, ["a", "b", "c"]),
            (Sort::LongestWait, ["b", "c", "a"]),
        ] {
            model.press(Key::Char('s'));
            assert_eq!((model.sort, names(&model)), (sort, order.to_vec()));
        }
    }

    #[test]
    fn the_selection_stays_with_its_lock_and_in_sight() {
        let locks: Vec<_> = (0..1000).map(|at| lock(&format!("n{at:04}"), at, &[])).collect();
        let mut model = model(&locks);
        model.press(Key::End);
        assert_eq!((model.selection(), model.from), (999, 997));
        model.press(Key::PageUp);
        assert_eq!((model.selection(), model.from), (996, 996));
        // By what is held longest, the last name is first.
        model.press(Key::End);
        model.press(Key::Char('s'));
        model.press(Key::Char('s'));
        assert_eq!((model.sort, model.selection(), model.from), (Sort::LongestHeld, 0, 0));
        model.update(BTreeMap::new(), false);
        assert_eq!((model.selection(), model.from), (0, 0));
        assert_eq!(model.press(Key::Enter), Wish::Nothing);
    }

    #[test]
    fn breaking_takes_a_reason_and_the_holder_that_was_shown() {
        let mut model = model(&[lock("x", 9, &[])]);
        model.press(Key::Char('b'));
        assert_eq!(model.press(Key::Enter), Wish::Nothing, "without a reason");
        "quit".chars().for_each(|c| drop(model.press(Key::Char(c))));
        let token = FencingToken::new(1_794_779_023_296_693).unwrap();
        // Another has it by now.
        model.update(BTreeMap::from([("x".to_owned(), lock("x", 1, &[]))]), false);
        model.press(Key::Backspace);
        let wish = model.press(Key::Enter);
        assert_eq!(wish, Wish::Break { name: "x".into(), token, reason: "qui".into() });
        model.press(Key::Char('b'));
        model.press(Key::Escape);
        assert!(matches!(model.page, Page::List) && model.message.contains("left as it is"));
        assert_eq!(model.press(Key::Char('q')), Wish::Quit);
    }
}
