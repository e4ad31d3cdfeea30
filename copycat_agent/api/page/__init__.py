"""The web page: `page_app` takes requests, each view makes one HTML document, `markup` escapes everything that is not a tag.

Views show the answers of `handlers` in the texts of `status_text`, as the commands do. Everything works without JavaScript; `page.js` only
reloads the same address and replaces what has changed.
"""
