//! The media type of a text that a snippet or an annotation responds with. As in nginx, it is determined by the
//! extension of the path, as if it were a file's.

use bytes::Bytes;

use super::Exchange;

/// The default of the default.
const USUAL: &str = "text/html";

/// The media type of a response: by the extension of the request's path, else `said` with the response, else the
/// fleet's default (ConfigMap option `default-type`).
pub(super) fn of(exchange: &Exchange<'_>, configured: Option<&Bytes>) -> Bytes {
    if let Some(known) = ending(exchange.path()).and_then(known) {
        return Bytes::from_static(known.as_bytes());
    }
    if let Some(configured) = configured {
        return configured.clone();
    }
    let configured = match exchange.location() {
        Some(location) => location.policy.response_headers.media_type.clone(),
        None => exchange.call.server.with_table(|table| table.policy().response_headers.media_type.clone()),
    };
    configured.unwrap_or(Bytes::from_static(USUAL.as_bytes()))
}

/// The part after the last dot of the last segment, unless the segment begins with that dot.
fn ending(path: &[u8]) -> Option<&[u8]> {
    let name = memchr::memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
    let dot = memchr::memrchr(b'.', name).filter(|dot| *dot > 0)?;
    Some(&name[dot + 1..])
}

fn known(ending: &[u8]) -> Option<&'static str> {
    let fits = |all: &str| all.split(' ').any(|one| one.as_bytes().eq_ignore_ascii_case(ending));
    TYPES.iter().find(|(_, endings)| fits(endings)).map(|(name, _)| *name)
}

/// nginx' own list (conf/mime.types): media types, and the extensions of each.
const TYPES: &[(&str, &str)] = &[
    ("text/html", "html htm shtml"),
    ("text/css", "css"),
    ("text/xml", "xml"),
    ("image/gif", "gif"),
    ("image/jpeg", "jpeg jpg"),
    ("application/javascript", "js"),
    ("application/atom+xml", "atom"),
    ("application/rss+xml", "rss"),
    ("text/mathml", "mml"),
    ("text/plain", "txt"),
    ("text/vnd.sun.j2me.app-descriptor", "jad"),
    ("text/vnd.wap.wml", "wml"),
    ("text/x-component", "htc"),
    ("image/avif", "avif"),
    ("image/png", "png"),
    ("image/svg+xml", "svg svgz"),
    ("image/tiff", "tif tiff"),
    ("image/vnd.wap.wbmp", "wbmp"),
    ("image/webp", "webp"),
    ("image/x-icon", "ico"),
    ("image/x-jng", "jng"),
    ("image/x-ms-bmp", "bmp"),
    ("font/woff", "woff"),
    ("font/woff2", "woff2"),
    ("application/java-archive", "jar war ear"),
    ("application/json", "json"),
    ("application/mac-binhex40", "hqx"),
    ("application/msword", "doc"),
    ("application/pdf", "pdf"),
    ("application/postscript", "ps eps ai"),
    ("application/rtf", "rtf"),
    ("application/vnd.apple.mpegurl", "m3u8"),
    ("application/vnd.google-earth.kml+xml", "kml"),
    ("application/vnd.google-earth.kmz", "kmz"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.ms-fontobject", "eot"),
    ("application/vnd.ms-powerpoint", "ppt"),
    ("application/vnd.oasis.opendocument.graphics", "odg"),
    ("application/vnd.oasis.opendocument.presentation", "odp"),
    ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
    ("application/vnd.oasis.opendocument.text", "odt"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/vnd.wap.wmlc", "wmlc"),
    ("application/wasm", "wasm"),
    ("application/x-7z-compressed", "7z"),
    ("application/x-cocoa", "cco"),
    ("application/x-java-archive-diff", "jardiff"),
    ("application/x-java-jnlp-file", "jnlp"),
    ("application/x-makeself", "run"),
    ("application/x-perl", "pl pm"),
    ("application/x-pilot", "prc pdb"),
    ("application/x-rar-compressed", "rar"),
    ("application/x-redhat-package-manager", "rpm"),
    ("application/x-sea", "sea"),
    ("application/x-shockwave-flash", "swf"),
    ("application/x-stuffit", "sit"),
    ("application/x-tcl", "tcl tk"),
    ("application/x-x509-ca-cert", "der pem crt"),
    ("application/x-xpinstall", "xpi"),
    ("application/xhtml+xml", "xhtml"),
    ("application/xspf+xml", "xspf"),
    ("application/zip", "zip"),
    ("application/octet-stream", "bin exe dll deb dmg iso img msi msp msm"),
    ("audio/midi", "mid midi kar"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "ogg"),
    ("audio/x-m4a", "m4a"),
    ("audio/x-realaudio", "ra"),
    ("video/3gpp", "3gpp 3gp"),
    ("video/mp2t", "ts"),
    ("video/mp4", "mp4"),
    ("video/mpeg", "mpeg mpg"),
    ("video/quicktime", "mov"),
    ("video/webm", "webm"),
    ("video/x-flv", "flv"),
    ("video/x-m4v", "m4v"),
    ("video/x-mng", "mng"),
    ("video/x-ms-asf", "asx asf"),
    ("video/x-ms-wmv", "wmv"),
    ("video/x-msvideo", "avi"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_as_a_file_does() {
        let media = |path: &str| ending(path.as_bytes()).and_then(known);
        for (path, expected) in [
            ("/robots.txt", Some("text/plain")),
            ("/a.b/c.JSON", Some("application/json")),
            ("/a.tar.zip", Some("application/zip")),
            ("/crl.pem", Some("application/x-x509-ca-cert")),
            ("/a.json/b", None),
            ("/a.json/", None),
            ("/a/.json", None),
            ("/.json", None),
            ("/a.", None),
            ("/a.html htm", None),
            ("/", None),
        ] {
            assert_eq!(media(path), expected, "{path}");
        }
    }
}
