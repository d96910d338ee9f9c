//! The keys of every server.

use super::link::Link;
use crate::error::Result;

/// Every key that begins with `start`, and is of this type if one is named.
pub(super) async fn keys(link: &Link, start: &str, kind: Option<&str>) -> Result<Vec<String>> {
    let pattern = format!("{}*", literally(start));
    let mut found = Vec::new();
    for mut wire in link.every_primary().await? {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            if let Some(kind) = kind {
                scan.arg("TYPE").arg(kind);
            }
            let answer = scan.query_async::<(String, Vec<Vec<u8>>)>(&mut wire).await;
            let (next, keys) = answer.map_err(|error| link.route.explain(error))?;
            found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(found)
}

/// The text as a pattern that matches itself only.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if "*?[]\\^".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
