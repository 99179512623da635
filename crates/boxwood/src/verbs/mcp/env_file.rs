//! A file of variables, as `envFile` names one: `KEY=value` in each line.

/// The variables in the order of the file. A line that is none is an error, by its number: the text may
/// be a secret.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let pair = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()));
        match pair {
            Some((key, value)) if !key.is_empty() && !key.contains(char::is_whitespace) => {
                found.push((key.to_owned(), unquoted(value)));
            }
            _ => return Err(format!("line {} is not `KEY=value`", at + 1)),
        }
    }
    Ok(found)
}

fn unquoted(value: &str) -> String {
    let single = value
        .strip_prefix('\'')
        .and_then(|rest| rest.split_once('\''));
    if let Some((inner, _)) = single {
        return inner.to_owned();
    }
    if let Some(rest) = value.strip_prefix('"') {
        return double_quoted(rest);
    }
    // A comment needs a blank before it, so that `a#b` stays whole.
    let end = value.find(" #").unwrap_or(value.len());
    value[..end].trim_end().to_owned()
}

fn double_quoted(rest: &str) -> String {
    let mut text = String::new();
    let mut chars = rest.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => break,
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some(other @ ('"' | '\\' | '$')) => text.push(other),
                Some(other) => text.extend(['\\', other]),
                None => text.push('\\'),
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_shells_and_editors_do() {
        let text = "\u{feff}# comment\n\nA=1\nexport B = two words \nC='$x #1' # why\nD=\"a\\nb\\\"c\" # why\n\
                    E=a#b # c\nF=\nG=a=b\nH=${A}\nI='open\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "$x #1"),
            ("D", "a\nb\"c"),
            ("E", "a#b"),
            ("F", ""),
            ("G", "a=b"),
            ("H", "${A}"),
            ("I", "'open"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(parse(text), Ok(expected.to_vec()));
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number_alone() {
        assert_eq!(
            parse("A=1\nhunter2\n"),
            Err("line 2 is not `KEY=value`".to_owned())
        );
        assert!(parse("=x").is_err());
        assert!(parse("a b=x").is_err());
    }
}
