"""A client of a gateway's Kiwi protocol, on Trio. Of the server's code it has the messages alone."""
