//! The list of stories, and what came of one.

use super::act::Act;
use super::scene::OffScript;
use super::stage::Stage;
use super::{
    f01_crash_before_expire, f02_unlocks_anothers, f03_failover_forgets, f04_node_restarts_empty,
    f05_clock_jumps, f06_long_pause, f07_lost_reply, f08_herd, f09_predecessor_dies,
    f10_middle_dies, f11_holder_dies, f12_row_left_behind, f13_connections_used_up,
};
use crate::check::Verdict;
use crate::server::Kind;
use anyhow::Result;

/// A known failure of distributed locks.
#[derive(Debug)]
pub struct Story {
    /// `F1` to `F13`.
    pub id: &'static str,
    /// The name of its page.
    pub slug: &'static str,
    /// What happens, in a line.
    pub title: &'static str,
    /// Who is there, and what goes wrong, for a reader who does not know the code.
    pub setting: &'static str,
    /// What cures it, and what to remember.
    pub lesson: &'static str,
    /// The servers it needs.
    pub needs: &'static [Kind],
    pub(super) tell: fn(&Stage) -> Result<Vec<Act>>,
}

/// All of them.
pub static STORIES: &[Story] = &[
    f01_crash_before_expire::STORY,
    f02_unlocks_anothers::STORY,
    f03_failover_forgets::STORY,
    f04_node_restarts_empty::STORY,
    f05_clock_jumps::STORY,
    f06_long_pause::STORY,
    f07_lost_reply::STORY,
    f08_herd::STORY,
    f09_predecessor_dies::STORY,
    f10_middle_dies::STORY,
    f11_holder_dies::STORY,
    f12_row_left_behind::STORY,
    f13_connections_used_up::STORY,
];

/// What came of a story.
#[derive(Debug)]
pub struct Told {
    /// The schemes that are to fail, and the cures.
    pub acts: Vec<Act>,
    /// What did not go as the story needs it, with the verdict.
    pub off_script: Option<(Verdict, String)>,
}

impl Story {
    /// Tells it.
    ///
    /// # Errors
    /// When the lab could not do its work. A story that went otherwise is no error.
    pub fn tell(&self, stage: &Stage) -> Result<Told> {
        match (self.tell)(stage) {
            Ok(acts) => Ok(Told { acts, off_script: None }),
            Err(error) => match error.downcast_ref::<OffScript>() {
                Some(off) => {
                    let off_script = Some((off.verdict, off.to_string()));
                    stage.print(&format!("  ==>  {}: {off}", off.verdict));
                    Ok(Told { acts: Vec::new(), off_script })
                }
                None => Err(error),
            },
        }
    }
}

impl Told {
    /// Pass if every scheme failed that was to fail, and every cure held.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if let Some((verdict, _)) = &self.off_script {
            return *verdict;
        }
        let cured = |act: &&Act| act.cure;
        if self.acts.iter().filter(cured).any(|act| act.verdict == Verdict::Fail) {
            return Verdict::Fail;
        }
        let both = [true, false].iter().all(|cure| self.acts.iter().any(|act| act.cure == *cure));
        let told = both && self.acts.iter().all(Act::as_told);
        if told { Verdict::Pass } else { Verdict::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::super::act::Shown;
    use super::*;
    use Verdict::{Fail, Pass, Unknown};

    fn told(acts: &[(bool, Verdict)]) -> Verdict {
        let act = |&(cure, verdict): &(bool, Verdict)| Act {
            cure,
            heading: String::new(),
            began: 0,
            steps: Vec::new(),
            marks: Vec::new(),
            verdict,
            found: String::new(),
            shown: Shown::Figures(Vec::new()),
        };
        Told { acts: acts.iter().map(act).collect(), off_script: None }.verdict()
    }

    #[test]
    fn a_story_passes_when_the_scheme_failed_and_the_cure_held() {
        assert_eq!(told(&[(false, Fail), (true, Pass)]), Pass);
        assert_eq!(told(&[(false, Fail), (true, Pass), (true, Pass)]), Pass);
    }

    #[test]
    fn a_scheme_that_did_not_fail_is_unknown() {
        for seen in [Pass, Unknown] {
            assert_eq!(told(&[(false, seen), (true, Pass)]), Unknown);
        }
        assert_eq!(told(&[(false, Fail), (true, Unknown)]), Unknown);
    }

    #[test]
    fn a_cure_that_failed_is_a_failure() {
        assert_eq!(told(&[(false, Fail), (true, Fail)]), Fail);
        assert_eq!(told(&[(false, Unknown), (true, Fail)]), Fail);
    }

    #[test]
    fn half_a_story_is_unknown() {
        assert_eq!(told(&[]), Unknown);
        assert_eq!(told(&[(false, Fail)]), Unknown);
        assert_eq!(told(&[(true, Pass)]), Unknown);
    }

    #[test]
    fn there_are_thirteen_in_order() {
        let ids: Vec<&str> = STORIES.iter().map(|story| story.id).collect();
        let expected: Vec<String> = (1..=13).map(|number| format!("F{number}")).collect();
        assert_eq!(ids, expected);
        for story in STORIES {
            let number: usize = story.id[1..].parse().unwrap();
            assert!(story.slug.starts_with(&format!("F{number:02}-")), "{}", story.slug);
        }
    }
}
