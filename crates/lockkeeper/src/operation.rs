//! What is asked of a store, as metrics tell it apart.

/// What is asked of a store: at the boundary of the trait [`Backend`](crate::backend::Backend), whatever the
/// store makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "measured only with that feature"))]
pub(crate) enum Operation {
    Acquire,
    Renew,
    Release,
    Withdraw,
    Inspect,
    Break,
    Number,
    Record,
    Time,
    Check,
}

#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "measured only with that feature"))]
impl Operation {
    pub(crate) const ALL: [Self; 10] = [
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Withdraw,
        Self::Inspect,
        Self::Break,
        Self::Number,
        Self::Record,
        Self::Time,
        Self::Check,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Withdraw => "withdraw",
            Self::Inspect => "inspect",
            Self::Break => "break",
            Self::Number => "number",
            Self::Record => "record",
            Self::Time => "time",
            Self::Check => "check",
        }
    }
}
