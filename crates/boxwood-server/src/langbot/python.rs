//! Where Python's idea of text is not Rust's.

/// What Python strips: what Unicode calls white space, and four separators.
pub(super) fn is_python_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}
