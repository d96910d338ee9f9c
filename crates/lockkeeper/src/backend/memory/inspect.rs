//! Looking into a store in memory.

use super::Memory;
use super::table::Held;
use crate::backend::{FencingToken, Inspector, LockView, LossReason, Name, Page, Watched};
use crate::error::Result;
use async_trait::async_trait;
use std::ops::Bound;

#[async_trait]
impl Inspector for Memory {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.faults.pass().await?;
        let table = self.table();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let views = table
            .lines
            .range::<str, _>(from)
            .take_while(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, line)| line.view(name));
        Ok(views.filter(|view| !view.holders.is_empty() || !view.waiters.is_empty()).collect())
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.faults.pass().await?;
        let table = self.table();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let of_prefix = table.lines.range::<str, _>((from, Bound::Unbounded));
        let of_prefix = of_prefix.take_while(|(name, _)| name.as_str().starts_with(prefix));
        let views = of_prefix.map(|(name, line)| line.view(name));
        let busy = views.filter(|view| !view.holders.is_empty() || !view.waiters.is_empty());
        Ok(Page::of_all(busy.take(limit.saturating_add(1)).collect(), None, limit))
    }

    async fn show(&self, name: &Name) -> Result<LockView> {
        self.faults.pass().await?;
        let table = self.table();
        let free = LockView::new(name.clone());
        Ok(table.lines.get(name).map_or(free, |line| line.view(name)))
    }

    fn watch(&self, name: &Name) -> Option<Watched> {
        let changed = self.table().watch(name).notified_owned();
        Some(Box::pin(changed))
    }

    async fn break_hold(&self, name: &Name, token: FencingToken, reason: &str) -> Result<bool> {
        self.faults.pass().await?;
        let broken: Vec<Held> = self.table().take_out(name, token);
        // Rung outside the lock: a lost hold may release, which takes it again.
        for alarm in broken.iter().flat_map(|held| &held.alarms) {
            alarm.ring(LossReason::Broken { reason: reason.to_owned() });
        }
        Ok(!broken.is_empty())
    }
}
