//! The clock that times in the file are written on.
//!
//! On Linux it is the time since boot, and the file remembers which boot: the wall clock can be set
//! while locks are held, this one cannot. After a reboot every claim in the file is void, since
//! every process that made one is gone.
//!
//! Elsewhere it is the wall clock. Setting it forward ends claims early in the file, while a holder
//! measures its validity on a clock of its own and goes on believing in its claim; only the fencing
//! token protects the resource then. Setting it back makes claims of dead processes last longer.

use super::record::millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds of the wall clock, for tokens. Correctness does not rest on it: a token is also
/// above every earlier one of its name. The clock makes tokens grow even if the file is deleted.
pub(super) fn wall_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Milliseconds of the wall clock, for times where there is no clock since boot.
pub(super) fn wall_ms() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A factor for pauses, so that processes that failed together do not try again together: between a
/// half and one and a half, different for processes that ask at the same time. The process id is
/// mixed in because processes on several cores can read the same nanosecond. No random generator:
/// this needs to be neither secret nor evenly distributed.
pub(super) fn uneven() -> f64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let mixed = nanos.wrapping_mul(0x9e37_79b1) ^ std::process::id().wrapping_mul(0x85eb_ca6b);
    0.5 + f64::from(mixed) / f64::from(u32::MAX)
}

/// The clock of the file's times, and the name under which the file remembers it. All processes
/// that use a file at the same time have the same one; `schema::open` refuses a file of which that
/// is not true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreClock {
    /// Time since this boot, which goes on while the machine sleeps. The id tells one boot from the
    /// next: the same number of milliseconds means another moment in each.
    #[cfg_attr(any(lockkeeper_portable, not(target_os = "linux")), allow(dead_code))]
    Boot { id: String },
    /// The wall clock, the same for all boots: claims in the file outlive a reboot until they
    /// expire.
    Wall,
}

impl StoreClock {
    /// The time since boot where the machine tells which boot it is. A Linux process without
    /// `/proc` cannot know it and falls back to the wall clock; it is then refused by files of
    /// processes that do know.
    pub(super) fn of_this_machine() -> Self {
        #[cfg(all(target_os = "linux", not(lockkeeper_portable)))]
        if let Ok(id) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            return Self::Boot { id: id.trim().to_owned() };
        }
        Self::Wall
    }

    /// How the file remembers it.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Boot { id } => format!("boot {id}"),
            Self::Wall => "wall".to_owned(),
        }
    }

    /// The time to write into the file. Must be read inside the transaction that writes it: the
    /// transactions of all processes are one after another, so their times are in the same order.
    pub(super) fn now_ms(&self) -> i64 {
        match self {
            #[cfg(all(target_os = "linux", not(lockkeeper_portable)))]
            Self::Boot { .. } => {
                let since_boot = crate::clock::awake::Reading::now().since_boot();
                // Rounded down here and up in `millis`: the end of a claim is never early by
                // more than the margin its holder keeps.
                i64::try_from(since_boot.as_millis()).unwrap_or(i64::MAX / 4)
            }
            _ => wall_ms(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would fail if Linux fell back to the wall clock, which everything else here would silently
    /// survive: only a clock that is set while locks are held would show it.
    #[cfg(target_os = "linux")]
    #[test]
    fn linux_counts_from_boot() {
        let clock = StoreClock::of_this_machine();
        assert!(matches!(clock, StoreClock::Boot { .. }), "{clock:?}");
        assert!(clock.now_ms() < wall_ms());
    }
}
