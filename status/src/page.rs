//! The page: files that are a part of the program and say nothing of the job.
//!
//! They are given to whoever asks; what they show they ask for themselves, by the token that the
//! one who looks has given them.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) text: &'static str,
}

/// What the page may do: nothing but what it does itself, with this rank only.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                                 connect-src 'self'; base-uri 'none'; form-action 'none'; \
                                 frame-ancestors 'none'; require-trusted-types-for 'script'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: &[Asset] = &[
    Asset::new("/", HTML, include_str!("page/index.html")),
    Asset::new(
        "/page/style.css",
        "text/css; charset=utf-8",
        include_str!("page/style.css"),
    ),
    Asset::new("/page/main.js", SCRIPT, include_str!("page/main.js")),
    Asset::new("/page/feed.js", SCRIPT, include_str!("page/feed.js")),
    Asset::new("/page/format.js", SCRIPT, include_str!("page/format.js")),
    Asset::new("/page/canvas.js", SCRIPT, include_str!("page/canvas.js")),
    Asset::new("/page/ranks.js", SCRIPT, include_str!("page/ranks.js")),
    Asset::new("/page/links.js", SCRIPT, include_str!("page/links.js")),
    Asset::new("/page/charts.js", SCRIPT, include_str!("page/charts.js")),
    Asset::new(
        "/page/timeline.js",
        SCRIPT,
        include_str!("page/timeline.js"),
    ),
];

impl Asset {
    const fn new(path: &'static str, content_type: &'static str, text: &'static str) -> Self {
        Self {
            path,
            content_type,
            text,
        }
    }

    /// The one at this path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        ASSETS.iter().find(|asset| asset.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_no_other_place_and_every_file_that_it_names_is_there() {
        for asset in ASSETS {
            assert!(
                !asset.text.contains("//") || !asset.text.contains("http"),
                "{}",
                asset.path
            );
            for unsafe_way in ["innerHTML", "eval(", "document.write", "style=", "onclick="] {
                assert!(
                    !asset.text.contains(unsafe_way),
                    "{}: {unsafe_way}",
                    asset.path
                );
            }
            let quoted = asset.text.split('"').skip(1).step_by(2);
            for name in quoted.filter(|name| name.ends_with(".js") || name.ends_with(".css")) {
                let path = match name.strip_prefix("./") {
                    Some(name) => format!("/page/{name}"),
                    None => name.to_owned(),
                };
                assert!(Asset::at(&path).is_some(), "{}: {name}", asset.path);
            }
        }
    }
}
