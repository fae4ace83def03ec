"""A release: the tagged version with its changes, and the addresses of its repository."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from scripts import release
from tests.git import git

ROOT = Path(__file__).parents[3]
PROJECT = '[project]\nname = "x"\nversion = "0.2.0"\n'
CHANGES = "## [Unreleased]\n## [0.2.0] - 2026-12-01\n### Added\n- More.\n"


@pytest.fixture
def checkout(tmp_path) -> Path:
    (tmp_path / release.PROJECT).write_text(PROJECT)
    (tmp_path / release.CHANGES).write_text(CHANGES)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    git(tmp_path, "tag", "v0.2.0")
    return tmp_path


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-gpg-sign", "--message", "x")


def test_a_tagged_version_with_its_changes_is_released(checkout):
    assert release.check(checkout) == "0.2.0"


def test_another_tag_is_refused(checkout):
    git(checkout, "tag", "--delete", "v0.2.0")
    with pytest.raises(release.ReleaseError, match=r"0\.2\.0, and HEAD has the tags none"):
        release.check(checkout)
    git(checkout, "tag", "v0.1.0")
    with pytest.raises(release.ReleaseError, match=r"the tags v0\.1\.0: run `git tag v0\.2\.0`"):
        release.check(checkout)


@pytest.mark.parametrize("text", ["## [Unreleased]\n", "## [0.2.0]\n", "## [0.2.1] - 2026-12-01\n"])
def test_a_version_without_its_changes_is_refused(checkout, text):
    (checkout / release.CHANGES).write_text(text)
    commit(checkout)
    git(checkout, "tag", "--force", "v0.2.0")
    with pytest.raises(release.ReleaseError, match=r"no entry of 0\.2\.0 with a date"):
        release.check(checkout)


def test_a_changed_file_is_not_released(checkout):
    (checkout / "new.py").touch()
    with pytest.raises(release.ReleaseError, match=r"differ from HEAD.*\n\?\? new\.py"):
        release.check(checkout)


def test_addresses_are_those_of_the_repository_that_publishes(checkout, monkeypatch):
    monkeypatch.delenv("REPOSITORY", raising=False)
    assert release.repository(checkout) == ""
    git(checkout, "remote", "add", "origin", "/a/folder")
    assert release.repository(checkout) == ""
    git(checkout, "remote", "set-url", "origin", "https://git.example.org/team/yard.git")
    assert release.repository(checkout) == "https://git.example.org/team/yard"
    monkeypatch.setenv("REPOSITORY", "https://git.example.org/fork/yard/")
    assert release.repository(checkout) == "https://git.example.org/fork/yard"
    for bad in ('https://x.org/a"b', "ftp://x.org/a", "https://x.org/a\nb = 1"):
        monkeypatch.setenv("REPOSITORY", bad)
        with pytest.raises(release.ReleaseError, match="REPOSITORY="):
            release.repository(checkout)


def test_the_index_shows_pages_and_pictures_of_the_tag():
    address = "https://git.example.org/team/yard"
    project = (ROOT / release.PROJECT).read_text()
    urls = tomllib.loads(release.project_with_addresses(project, address))["project"]["urls"]
    assert urls["Repository"] == address
    assert all(url.startswith(address) for url in urls.values())
    text = release.readme_with_addresses((ROOT / release.README).read_text(), address, "v0.2.0")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert f"{address}/raw/v0.2.0/docs/demo.svg" in targets
    assert f"{address}/blob/v0.2.0/docs/train.md" in targets
    assert [each for each in targets if not each.startswith("https://")] == []


def test_the_changelog_keeps_its_form():
    text = (ROOT / release.CHANGES).read_text()
    versions = [found["version"] for found in release.HEADING.finditer(text)]
    assert versions[0] == "Unreleased"
    assert all(found["date"] for found in [*release.HEADING.finditer(text)][1:])
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {
        *("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits")
    }


def test_only_the_job_that_publishes_has_an_identity_and_it_builds_nothing():
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    with_identity = [name for name, job in jobs.items() if "id-token" in job["permissions"]]
    assert with_identity == ["publish"]
    assert jobs["publish"]["environment"] == "pypi"
    said = str(jobs["publish"]["steps"])
    assert "make" not in said
    assert "--require-hashes" in said
    assert "secrets." not in text
    assert "make release" in str(jobs["build"]["steps"])
    used = [step.get("uses", step.get("run", "")) for step in jobs["publish"]["steps"]]
    signing = next(i for i, each in enumerate(used) if each.startswith("astral-sh/attest-action@"))
    assert "uv publish" in "".join(used[signing:])


def test_only_a_commit_of_main_is_published(checkout):
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    first, second, *_ = yaml.safe_load(text)["jobs"]["build"]["steps"]
    assert first["with"]["fetch-depth"] == 0

    def refused() -> int:
        command = ["bash", "-e", "-c", second["run"]]
        return subprocess.run(command, cwd=checkout, check=False, capture_output=True).returncode

    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert refused() == 0
    (checkout / "other").touch()
    commit(checkout)
    assert refused() == 1
