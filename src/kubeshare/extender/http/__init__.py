"""A small HTTP/1.1 server: h11 over asyncio, every wait and size bounded."""
