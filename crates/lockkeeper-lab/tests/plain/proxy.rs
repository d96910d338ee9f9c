//! A way to the store on which a command can be held back, or its answer lost.

use anyhow::{Result, ensure};
use lockkeeper_lab::proxy::{self, Step};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

pub(crate) struct Proxy {
    pub(crate) port: u16,
    inner: proxy::Proxy,
    rule: Arc<Rule>,
}

/// What is to happen to a command that contains a word, and how often it did.
#[derive(Default)]
struct Rule {
    state: Mutex<State>,
    applied: Condvar,
}

#[derive(Default)]
struct State {
    word: &'static str,
    step: Step,
    applied: usize,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Result<Self> {
        let rule = Arc::new(Rule::default());
        let reading = rule.clone();
        let inner = proxy::Proxy::start_read(([127, 0, 0, 1], port).into(), move || {
            let rule = reading.clone();
            // What is looked for is small enough to come in one piece.
            Box::new(move |piece| rule.read(piece))
        })?;
        Ok(Self { port: inner.address().port(), inner, rule })
    }

    pub(crate) fn hold(&self, word: &'static str) {
        self.rule.set(word, Step::Hold);
    }

    pub(crate) fn lose_answer_to(&self, word: &'static str) {
        self.rule.set(word, Step::EndInstead);
    }

    /// Lets through what is held back.
    pub(crate) fn pass(&self) {
        self.rule.set("", Step::Pass);
        self.inner.let_go();
    }

    /// Waits until the rule was applied.
    pub(crate) fn applied(&self) -> Result<()> {
        let state = self.rule.state.lock().unwrap_or_else(PoisonError::into_inner);
        let none = |state: &mut State| state.applied == 0;
        let waited = self.rule.applied.wait_timeout_while(state, super::PATIENT, none);
        let outcome = waited.unwrap_or_else(PoisonError::into_inner).1;
        ensure!(!outcome.timed_out(), "unknown: the command never came by");
        Ok(())
    }
}

impl Rule {
    fn set(&self, word: &'static str, step: Step) {
        let state = State { word, step, applied: 0 };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn read(&self, piece: &[u8]) -> Step {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (word, step) = (state.word.as_bytes(), state.step);
        if step == Step::Pass || !piece.windows(word.len()).any(|part| part == word) {
            return Step::Pass;
        }
        state.applied += 1;
        if step == Step::EndInstead {
            // Once.
            state.step = Step::Pass;
        }
        self.applied.notify_all();
        step
    }
}
