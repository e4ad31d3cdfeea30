"""The page to look at: `page_app` takes requests, each view makes one HTML document, `markup` sees to it that only tags are markup.

Views say what `handlers` answers, in the words of `words`: the page and the commands show the same. Everything is there without
JavaScript; `page.js` only asks for the same address again and puts what is new in its place.
"""
