"""A client of a gateway's Kiwi protocol, on Trio. Independent of the server's code."""
