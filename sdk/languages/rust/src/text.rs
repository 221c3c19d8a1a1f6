const MAX_TEXT: usize = 256;
const MIN_PIECE: usize = 16;

/// Makes text of a CA safe for an error or a log: tokens, and pieces of one, become "(secret)",
/// what does not print is escaped, and 256 bytes remain.
#[must_use]
pub fn clean_text(text: &str, tokens: &[&str]) -> String {
    let mut text: String = text.chars().take(64 * MAX_TEXT).collect();
    for token in tokens.iter().filter(|t| !t.is_empty()) {
        text = without(&text, token);
    }
    let mut clean = String::new();
    for c in text.chars() {
        let invisible =
            c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        let piece = if invisible { c.escape_default().to_string() } else { c.to_string() };
        if clean.len() + piece.len() > MAX_TEXT {
            break;
        }
        clean.push_str(&piece);
    }
    clean
}

/// Replaces a token, and each piece of one of 16 bytes or more.
fn without(text: &str, token: &str) -> String {
    let text = text.replace(token, "(secret)");
    let mut out = String::new();
    let mut rest = &text[..];
    while let Some(c) = rest.chars().next() {
        let length = common_piece(rest, token);
        if length < MIN_PIECE {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push_str("(secret)");
            rest = &rest[length..];
        }
    }
    out
}

/// Returns the length of the longest start of text that is in token.
fn common_piece(text: &str, token: &str) -> usize {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    ends.take_while(|end| token.contains(&text[..*end])).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::clean_text;

    #[test]
    fn text_has_no_token_and_no_control_characters() {
        let token = "0123456789abcdefghijklmnop";
        assert_eq!(clean_text(&format!("a {token}\nb {}", &token[3..22]), &[token]), "a (secret)\\nb (secret)");
        assert_eq!(clean_text(&"é".repeat(300), &[]).len(), 256);
    }
}
