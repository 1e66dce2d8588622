"""The page: a folder of runs in a browser, each as its report, while it runs and afterwards.

    page/server      what is served to whom: addresses, token, headers, streams of changes
    page/feed        what a page shows now, piece by piece, and what has changed since
    page/reading     reads runs in a process of its own: a run's report so far, a row of the list
    page/orders      what is started from the page: the commands a user would type, as processes

The server itself reads no records: the process that does is nice to what runs beside it, and a run that
cannot be read ends that process at worst.
"""
