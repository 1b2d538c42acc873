"""What is known of well-known models: dialect, window, sampling, thinking switches, Codex catalog entry."""

from turnwire.profiles.book import ProfileBook, ProfileError, builtin_book, find_profile, load_book
from turnwire.profiles.catalog import codex_entry
from turnwire.profiles.profile import EngineAdvice, Profile, ThinkingSwitches

__all__ = [
    "EngineAdvice",
    "Profile",
    "ProfileBook",
    "ProfileError",
    "ThinkingSwitches",
    "builtin_book",
    "codex_entry",
    "find_profile",
    "load_book",
]
