//! What store and recipe promise, in a line.

use super::Check;
use lockkeeper::backend::{Capability, Reach};

pub(super) fn of(can: &Capability) -> Check {
    if !can.sound {
        return Check::problem(
            "promises",
            "nothing: this recipe can grant a lock to two, and is there to be seen failing",
            "use another recipe: see `lockkeeper recipes`",
        );
    }
    let reach = match can.reach {
        Reach::Process => "excludes the tasks of one process",
        Reach::Machine => "excludes the processes of one machine",
        _ => "excludes everyone who reaches the store",
    };
    let mut words = vec![reach.to_owned()];
    let modes = [("shared", can.shared), ("permits", can.permits)];
    let modes = modes.into_iter().filter(|(_, has)| *has).map(|(word, _)| word);
    words.push(["exclusive"].into_iter().chain(modes).collect::<Vec<_>>().join(", "));
    let mut either = |has: bool, yes: &str, no: &str| {
        words.extend(
            [if has { yes } else { no }]
                .into_iter()
                .filter(|word| !word.is_empty())
                .map(str::to_owned),
        );
    };
    either(can.fair, "granted in order", "in no order");
    either(can.fencing, "fencing tokens", "no fencing tokens");
    either(can.notified, "waiters are woken", "waiters poll");
    either(
        can.durable,
        "survives a restart of a store that keeps its data",
        "does not survive a restart of the store",
    );
    either(can.reentrant, "re-entrant", "");
    either(can.session, "lives in a session", "");
    either(can.portable, "has tickets", "");
    either(can.inspects, "", "cannot be listed");
    Check::fine("promises", words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::backend::Verdict;

    #[test]
    fn an_unsafe_recipe_is_a_problem_and_others_say_what_they_have() {
        for recipe in lockkeeper::recipes() {
            let check = of(&recipe.capability);
            let expected = if recipe.is_unsafe() { Verdict::Problem } else { Verdict::Fine };
            assert_eq!(check.verdict, expected, "{}", recipe.example);
            let tokens = check.text.contains("; fencing tokens");
            assert_eq!(tokens, recipe.capability.fencing && !recipe.is_unsafe(), "{}", check.text);
        }
    }
}
