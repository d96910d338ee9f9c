//! What is shipped to watch lockkeeper with: the alert rules, tried by promtool, and the page of the exporter,
//! which must have what the documentation says.
#![cfg(unix)]

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use lockkeeper_docs::pages::root;
use lockkeeper_lab::server::{PROMTOOL, missing_tool};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

type Case = (&'static str, fn() -> Result<()>);

const BY_PROMTOOL: &[Case] = &[
    ("the_rules_are_rules", || promtool(&["check", "rules", "alerts.yml"], "")),
    ("the_rules_fire_when_they_should", || promtool(&["test", "rules", "alerts_test.yml"], "")),
    ("the_page_of_the_exporter_is_one_that_prometheus_reads", || {
        promtool(&["check", "metrics"], &page()?)
    }),
];

const BY_OURSELVES: &[Case] = &[
    ("the_page_of_the_exporter_is_what_the_documentation_says", documented),
    ("every_alert_is_tried", tried),
];

fn main() {
    let arguments = Arguments::from_args();
    let trial = |(name, case): &Case| {
        let case = *case;
        Trial::test(*name, move || case().map_err(|error| Failed::from(format!("{error:?}"))))
    };
    let ignored = missing_tool(&PROMTOOL);
    let by_promtool = BY_PROMTOOL.iter().map(|case| match &ignored {
        Some(reason) => trial(case).with_kind(reason.clone()).with_ignored_flag(true),
        None => trial(case),
    });
    let trials = by_promtool.chain(BY_OURSELVES.iter().map(trial)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Has promtool say that all is well, in the folder of the rules.
fn promtool(words: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new(PROMTOOL.path()?)
        .args(words)
        .current_dir(root().join("docs/monitoring"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said));
    Ok(())
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

/// A rule without a test could be one that never fires.
fn tried() -> Result<()> {
    let (rules, tests) =
        (read("docs/monitoring/alerts.yml")?, read("docs/monitoring/alerts_test.yml")?);
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    ensure!(alerts.len() >= 5, "{alerts:?}");
    for alert in alerts {
        let name = format!("alertname: {alert}\n");
        let fires = tests
            .match_indices(&name)
            .filter(|(at, _)| !tests[at + name.len()..].trim_start().starts_with("exp_alerts: []"));
        ensure!(fires.count() >= 1, "{alert} is not seen to fire");
        let spared = format!("{name}        exp_alerts: []");
        ensure!(tests.contains(&spared), "{alert} is not seen to let anything pass");
    }
    Ok(())
}

/// The name, the type and the labels of each.
fn documented() -> Result<()> {
    let text = read("docs/monitoring.md")?;
    let section = text.split("\n## ").find(|part| part.starts_with("The exporter\n"));
    let rows = section.context("a section of the exporter")?.lines();
    let rows = rows.filter(|line| line.starts_with("| `lockkeeper_"));
    let mut said = BTreeMap::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2].replace('`', "");
        said.insert(cells[0].replace('`', ""), (cells[1].to_owned(), labels));
    }
    let mut found: BTreeMap<String, (String, String)> = BTreeMap::new();
    let page = page()?;
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let series = line.split(' ').next().unwrap_or_default();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels: Vec<_> = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|it| Some(it.split_once('=')?.0))
            .collect();
        let kind = page.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        let kind = kind.with_context(|| format!("the type of {name}"))?;
        found.insert(name.to_owned(), (kind.to_owned(), labels.join(", ")));
    }
    ensure!(found == said, "found {found:#?}\ndocumented {said:#?}");
    Ok(())
}

/// What the exporter has to say of an empty store.
fn page() -> Result<String> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["exporter", "--listen", "127.0.0.1:0", "--prefix", "a\"b\\c/", "--store", &store])
        .env("XDG_CONFIG_HOME", folder.path())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut child = Ended(child);
    let mut lines = BufReader::new(child.0.stderr.take().context("a pipe")?).lines();
    let line = lines.next().context("it ended")??;
    let Some((_, url)) = line.split_once("listening at http://") else { bail!("it says {line:?}") };
    let mut stream = TcpStream::connect(url.trim_end_matches("/metrics"))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, page) = answer.split_once("\r\n\r\n").context("an answer")?;
    Ok(page.to_owned())
}

/// A process that does not outlive its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
