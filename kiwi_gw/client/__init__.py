"""A client of a gateway's Kiwi protocol, on Trio. It imports only the messages of the server's code."""
