//! Reading JSON answers, with errors that name the URL and the field.

use serde_json::Value;

use super::secret::{self, Secret};
use crate::error::ServiceError;

/// One value in the answer to a request; what it lacks is reported by URL and field.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    url: &'a str,
    field: String,
    value: Option<&'a Value>,
}

/// Reads the body of an answer to a request that had these secrets.
pub(crate) fn parse<'a>(
    url: &str,
    body: &[u8],
    secrets: impl IntoIterator<Item = &'a Secret>,
) -> Result<Value, ServiceError> {
    serde_json::from_slice(body).map_err(|_| {
        let found = secret::removed(secrets, &String::from_utf8_lossy(body));
        ServiceError::NotJson {
            url: url.to_owned(),
            found: found.chars().take(80).collect(),
        }
    })
}

/// What an error answer says: the message in the form of Google's services or of Kubernetes, else
/// the first line. A service that repeats a secret does not get it into an error.
pub(crate) fn said<'a>(body: &[u8], secrets: impl IntoIterator<Item = &'a Secret>) -> String {
    let text = String::from_utf8_lossy(body);
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let message = value.as_ref().and_then(|value| {
        let error = value.get("error").unwrap_or(value);
        error.get("message").unwrap_or(error).as_str()
    });
    let line = message.unwrap_or_else(|| text.lines().next().unwrap_or_default());
    secret::removed(secrets, line).chars().take(200).collect()
}

impl<'a> Answer<'a> {
    /// The whole answer.
    pub(crate) fn new(url: &'a str, value: &'a Value) -> Self {
        Self {
            url,
            field: String::new(),
            value: Some(value),
        }
    }

    /// A field of an object; of anything else, an absent value.
    pub(crate) fn at(&self, name: &str) -> Self {
        let field = if self.field.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.field)
        };
        Self {
            url: self.url,
            field,
            value: self.value.and_then(|value| value.get(name)),
        }
    }

    /// The path of this value in the answer.
    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    /// Whether there is such a value; `null` is none.
    pub(crate) fn is_present(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    /// Whether this is `true`.
    pub(crate) fn is_true(&self) -> bool {
        self.value == Some(&Value::Bool(true))
    }

    /// An object.
    pub(crate) fn object(&self) -> Result<(), ServiceError> {
        match self.value {
            Some(Value::Object(_)) => Ok(()),
            _ => Err(self.unexpected("an object")),
        }
    }

    /// A text, which may be empty.
    pub(crate) fn text(&self) -> Result<&'a str, ServiceError> {
        let text = self.value.and_then(Value::as_str);
        text.ok_or_else(|| self.unexpected("a text"))
    }

    /// A text, or nothing where there is none.
    pub(crate) fn optional_text(&self) -> Result<Option<&'a str>, ServiceError> {
        self.is_present().then(|| self.text()).transpose()
    }

    /// A text that says something.
    pub(crate) fn full_text(&self) -> Result<&'a str, ServiceError> {
        match self.text()? {
            "" => Err(self.unexpected("a text that is not empty")),
            text => Ok(text),
        }
    }

    /// The members of a list, which is empty where there is none.
    pub(crate) fn list(&self) -> Result<Vec<Self>, ServiceError> {
        if !self.is_present() {
            return Ok(Vec::new());
        }
        let members = self.value.and_then(Value::as_array);
        let members = members.ok_or_else(|| self.unexpected("a list"))?;
        let named = members.iter().enumerate().map(|(index, value)| Self {
            url: self.url,
            field: format!("{}[{index}]", self.field),
            value: Some(value),
        });
        Ok(named.collect())
    }

    /// A port, as a number or as a text.
    pub(crate) fn port(&self) -> Result<u16, ServiceError> {
        let number = match self.value {
            Some(Value::Number(number)) => number.as_u64().and_then(|n| u16::try_from(n).ok()),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        number
            .filter(|&port| port > 0)
            .ok_or_else(|| self.unexpected("a port from 1 to 65535"))
    }

    /// A small number, as a number or as a text.
    pub(crate) fn count(&self) -> Result<u32, ServiceError> {
        let number = match self.value {
            Some(Value::Number(number)) => number.as_u64().and_then(|n| u32::try_from(n).ok()),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.unexpected("a whole number"))
    }

    /// The error that says what belongs here.
    pub(crate) fn unexpected(&self, expected: &'static str) -> ServiceError {
        let found = self
            .value
            .map_or_else(|| "absent".to_owned(), Value::to_string);
        ServiceError::Field {
            url: self.url.to_owned(),
            field: self.field.clone(),
            found: found.chars().take(200).collect(),
            expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_says_is_found_in_either_form() {
        let check = |body: &str, expected: &str| assert_eq!(said(body.as_bytes(), None), expected);
        check(
            r#"{"error": {"message": "no such group"}}"#,
            "no such group",
        );
        check(r#"{"error": "invalid_grant"}"#, "invalid_grant");
        check(
            r#"{"kind": "Status", "message": "pods is forbidden"}"#,
            "pods is forbidden",
        );
        check("<html>\n<body>", "<html>");
        check("", "");
    }

    #[test]
    fn a_service_that_repeats_a_secret_does_not_get_it_into_an_error() {
        let secret = Secret::new("ya29.secret");
        let body = br#"{"error": {"message": "bad token ya29.secret here"}}"#;
        assert_eq!(said(body, [&secret]), "bad token [secret] here");
        let error = parse("http://service", b"ya29.secret\nmore", [&secret]).unwrap_err();
        assert!(!error.to_string().contains("ya29"), "{error}");
    }
}
