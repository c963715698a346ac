"""A small HTTP/1.1 server for programs: h11 over asyncio, every wait and size bounded."""
