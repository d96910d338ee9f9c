//! A value in this process that refuses stale writers.

use super::Stale;
use crate::backend::support::sync::lock;
use crate::claim::FencingToken;
use std::sync::{Mutex, MutexGuard};

/// A value in memory that refuses stale writers.
///
/// ```
/// use lockkeeper::{FencingToken, fence::Register};
///
/// let (old, new) = (FencingToken::new(1024).unwrap(), FencingToken::new(2048).unwrap());
/// let balance = Register::new(100);
/// let seen_by_old = balance.enter(old)?;
/// let seen_by_new = balance.enter(new)?; // the lock went on while the old holder slept
/// assert!(balance.write(old, seen_by_old - 10).is_err());
/// balance.write(new, seen_by_new - 20)?;
/// assert_eq!(balance.read(), 80);
/// # Ok::<(), lockkeeper::fence::Stale>(())
/// ```
#[derive(Debug)]
pub struct Register<T> {
    cell: Mutex<Cell<T>>,
}

#[derive(Debug)]
struct Cell<T> {
    seen: Option<FencingToken>,
    value: T,
}

impl<T> Register<T> {
    /// A register that has seen no token yet.
    pub fn new(value: T) -> Self {
        Self { cell: Mutex::new(Cell { seen: None, value }) }
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// [`Stale`] when a larger token was seen; the value is then unchanged.
    pub fn write(&self, token: FencingToken, value: T) -> Result<(), Stale> {
        self.update(token, |old| *old = value)
    }

    /// Changes the value in place; reading and writing are one step.
    ///
    /// # Errors
    /// [`Stale`] when a larger token was seen; `change` is then not called.
    pub fn update<R>(
        &self,
        token: FencingToken,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Stale> {
        let mut cell = self.cell();
        match cell.seen {
            Some(seen) if token < seen => Err(Stale { token, seen }),
            _ => {
                cell.seen = Some(token);
                Ok(change(&mut cell.value))
            }
        }
    }

    /// Shows the token of a new holder and reads: from here on every smaller token is refused.
    ///
    /// # Errors
    /// [`Stale`] when a larger token was seen.
    pub fn enter(&self, token: FencingToken) -> Result<T, Stale>
    where
        T: Clone,
    {
        self.update(token, |value| value.clone())
    }

    /// The value, for those who only look.
    pub fn read(&self) -> T
    where
        T: Clone,
    {
        self.cell().value.clone()
    }

    fn cell(&self) -> MutexGuard<'_, Cell<T>> {
        lock(&self.cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tokens_write_again_and_smaller_ones_do_not() {
        let token = |n| FencingToken::new(n).unwrap();
        let register = Register::new('a');
        assert!(register.write(token(2), 'b').is_ok());
        assert!(register.write(token(2), 'c').is_ok());
        let stale = register.write(token(1), 'x').unwrap_err();
        assert_eq!((stale.token, stale.seen), (token(1), token(2)));
        assert_eq!(register.read(), 'c');
    }
}
