//! A connection or session shared by many, made anew once for all of them when it broke.

use super::sync::lock;
use std::sync::Mutex;

/// The one in use, with a number that tells it from those before it.
#[derive(Debug)]
pub(crate) struct Reconnecting<T> {
    current: Mutex<Current<T>>,
    /// So that many who find it broken make one new one.
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Current<T> {
    number: u64,
    value: Option<T>,
}

impl<T> Default for Reconnecting<T> {
    fn default() -> Self {
        let current = Mutex::new(Current { number: 0, value: None });
        Self { current, making: tokio::sync::Mutex::default() }
    }
}

impl<T: Clone> Reconnecting<T> {
    /// With one that was made already.
    pub(crate) fn with(value: T) -> Self {
        let current = Mutex::new(Current { number: 1, value: Some(value) });
        Self { current, making: tokio::sync::Mutex::default() }
    }

    /// The one in use, if there is one and it is `good`.
    pub(crate) fn current(&self, good: impl Fn(&T) -> bool) -> Option<(u64, T)> {
        let current = lock(&self.current);
        Some((current.number, current.value.clone()?)).filter(|(_, value)| good(value))
    }

    /// The number of the one in use, if there is one.
    pub(crate) fn number(&self) -> Option<u64> {
        let current = lock(&self.current);
        current.value.as_ref().map(|_| current.number)
    }

    /// The one in use if it is `good`; else what `make` makes, for all who wait meanwhile.
    pub(crate) async fn get<E>(
        &self,
        good: impl Fn(&T) -> bool,
        make: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<(u64, T), E> {
        if let Some(found) = self.current(&good) {
            return Ok(found);
        }
        let _one = self.making.lock().await;
        if let Some(found) = self.current(&good) {
            return Ok(found);
        }
        let made = make().await?;
        let mut current = lock(&self.current);
        current.number += 1;
        current.value = Some(made.clone());
        Ok((current.number, made))
    }

    /// Takes the one with this number out of use, if it is still in it.
    pub(crate) fn give_up(&self, number: u64) -> Option<T> {
        let mut current = lock(&self.current);
        if current.number == number { current.value.take() } else { None }
    }

    /// Takes the one in use out of use, if it is `idle`; nobody can get hold of it meanwhile.
    pub(crate) fn take_if(&self, idle: impl FnOnce(&T) -> bool) -> Option<T> {
        lock(&self.current).value.take_if(|value| idle(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn many_who_find_it_broken_make_one() {
        let (shared, made) = (Reconnecting::default(), AtomicU32::new(0));
        let get = || {
            shared.get(
                |_| true,
                async || {
                    tokio::task::yield_now().await;
                    Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst))
                },
            )
        };
        let (one, two, three) = tokio::join!(get(), get(), get());
        assert_eq!((one, two, three), (Ok((1, 0)), Ok((1, 0)), Ok((1, 0))));
        assert_eq!(shared.give_up(7), None);
        assert_eq!(shared.number(), Some(1));
        assert_eq!(shared.give_up(1), Some(0));
        assert_eq!(shared.number(), None);
        assert_eq!(get().await, Ok((2, 1)));
    }
}
