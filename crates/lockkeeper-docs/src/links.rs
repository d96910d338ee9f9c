//! Where the links of a page lead.

use crate::markdown::prose;
use std::collections::BTreeMap;

/// What the links, pictures and references of `page` name, each with its line.
#[must_use]
pub fn targets(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(page) {
        let after = |mark: &'static str| text.match_indices(mark).map(|(at, _)| at + mark.len());
        for start in after("](") {
            found.push((line, in_brackets(&text[start..])));
        }
        for start in after("href=\"").chain(after("src=\"")).chain(after("srcset=\"")) {
            found.push((line, text[start..].split('"').next().unwrap_or_default().to_owned()));
        }
        if let Some((name, target)) = text.split_once("]: ")
            && name.starts_with('[')
            && !name.contains(' ')
        {
            found.push((line, target.trim().to_owned()));
        }
    }
    found
}

/// The target at the start of `text`, up to the bracket that closes it or to its title.
fn in_brackets(text: &str) -> String {
    let mut open = 0_u32;
    let end = text.find(|letter: char| match letter {
        '(' => {
            open += 1;
            false
        }
        ')' if open == 0 => true,
        ')' => {
            open -= 1;
            false
        }
        letter => letter.is_whitespace(),
    });
    text[..end.unwrap_or(text.len())].to_owned()
}

/// The anchors of a page, as forges make them of its headings, and those that it names itself.
#[must_use]
pub fn anchors(page: &str) -> Vec<String> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let mut found = Vec::new();
    // Code in backticks is a part of a heading's anchor, so the lines are taken as they are.
    let is_prose: Vec<usize> = prose(page).into_iter().map(|(line, _)| line).collect();
    for (line, text) in (1..).zip(page.lines()) {
        if is_prose.binary_search(&line).is_err() {
            continue;
        }
        for (at, mark) in text.match_indices("id=\"") {
            found.push(text[at + mark.len()..].split('"').next().unwrap_or_default().to_owned());
        }
        let heading = text.trim_start_matches('#');
        if (1..=6).contains(&(text.len() - heading.len())) && heading.starts_with(' ') {
            let slug = slug(heading.trim());
            let before = times.entry(slug.clone()).or_default();
            found.push(match *before {
                0 => slug,
                times => format!("{slug}-{times}"),
            });
            *before += 1;
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_every_form_are_found_and_code_is_not() {
        let page = "\
# A [link](a.md#x) and `[none](b)` and [`code`](c(d).md \"title\")
![picture](e.svg) <img src=\"f.svg\"> <source srcset=\"g.svg\"> <a href=\"#h\">h</a>
```text
[none](i)
```
[j]: k.md
";
        let targets: Vec<_> = targets(page).into_iter().map(|(_, target)| target).collect();
        assert_eq!(targets, ["a.md#x", "c(d).md", "e.svg", "#h", "f.svg", "g.svg", "k.md"]);
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let page = "# `run` & wait, -n\n## 选主 Leader\n## 选主 Leader\n```sh\n# none\n```\n<a id=\"own\"></a>\n#none\n";
        assert_eq!(anchors(page), ["run--wait--n", "选主-leader", "选主-leader-1", "own"]);
    }
}
