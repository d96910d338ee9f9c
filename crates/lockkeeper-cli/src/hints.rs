//! What a verb is called here that other programs call otherwise.

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// Adds to the refusal of an unknown verb what there is instead.
pub(crate) fn add_to(refusal: &mut Error) {
    let Some(ContextValue::String(verb)) = refusal.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let Some(hint) = instead_of(verb) else { return };
    // In place of a verb that only looks alike.
    refusal.remove(ContextKind::SuggestedSubcommand);
    refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
}

fn instead_of(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "list" | "ps" | "locks" => "`lockkeeper ls` lists the locks that are held or waited for",
        "status" | "info" | "get" => {
            "`lockkeeper show NAME` tells who has a lock, `lockkeeper ls` lists all of them"
        }
        "acquire" | "take" => {
            "`lockkeeper run NAME -- CMD` holds a lock for a command, `lockkeeper lock NAME` for longer"
        }
        "release" | "free" => {
            "`lockkeeper unlock TICKET` gives back what `lockkeeper lock` took; what `lockkeeper run` \
             took is given back when its command ends"
        }
        "exec" => "`lockkeeper run NAME -- CMD` holds a lock for a command",
        "kill" | "rm" | "delete" | "steal" => {
            "`lockkeeper break NAME` takes a lock from its holder"
        }
        "renew" | "extend" | "refresh" => "`lockkeeper keep TICKET` renews a lock by its ticket",
        "stores" => "`lockkeeper recipes` prints every kind of store",
        _ => return None,
    })
}
