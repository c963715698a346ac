"""The pages about kinds and commands are current and whole."""

import re

import click

from kubeshare.cli.main import COMMANDS
from tools import cli_page, kinds_page


def test_the_page_about_kinds_is_that_of_the_schemas() -> None:
    assert kinds_page.PAGE.read_text() == kinds_page.text(), "run tools/kinds_page.py"


def test_the_page_about_commands_is_that_of_the_commands() -> None:
    assert cli_page.PAGE.read_text() == cli_page.text(), "run tools/cli_page.py"


def test_each_kind_and_each_of_its_fields_is_described() -> None:
    for definition in kinds_page.definitions():
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found = dict(kinds_page.fields(schema))
        assert found
        # The rest of a PodSpec is Kubernetes' own, and conditions have a page.
        undescribed = [
            path
            for path, each in found.items()
            if not each.get("description")
            and not re.match(r"(spec\*?\.(containers|nodeName)|status\*?\.conditions)", path)
        ]
        assert undescribed == [], definition["spec"]["names"]["kind"]


def test_each_command_is_there() -> None:
    assert {path.split()[1] for path, _ in cli_page.commands()} == set(COMMANDS)
    page = cli_page.text()
    assert "--help" not in page.partition("\n## ")[2]
    assert page.count("For example:") >= len(COMMANDS)


def test_each_option_says_what_it_does() -> None:
    undescribed = [
        f"{path} {option.opts[-1]}"
        for path, command in cli_page.commands()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert undescribed == []
