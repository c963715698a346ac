"""Places demands of several different shares under any policy."""
