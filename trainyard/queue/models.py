"""The tables of the queue: jobs, their attempts, who starts them, users, and the queue itself."""

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

WAITING, STARTING, RUNNING = "WAITING", "STARTING", "RUNNING"
ACTIVE = (WAITING, STARTING, RUNNING)
SUCCEEDED, FAILED, STOPPED = "SUCCEEDED", "FAILED", "STOPPED"  # Ray's words


class Base(DeclarativeBase):
    """All tables."""


class Job(Base):
    """A submission. Times are seconds since 1970; what is a list or an object is JSON.

    Attributes:
        number: the order of submission.
        id: the submission id, which clients know.
        request: the body as it was posted.
        packages: names of the packages that it needs.
        bundles: what it needs at once, as Ray's resources.
        after: ids of jobs that must have ended.
        retries: how often it may start again after its head was lost.
        attempt: the newest one; 0 before the first.
        state: one of ACTIVE, or how it ended.
        stop: whether somebody asked for its end.
        yields: when it was asked to end, with a checkpoint; None while it was not.
        reason: why it ended so; of one that runs, why it is asked to end and not to start again.
        end: what the head said of it last.
        every: of an entry, which makes jobs instead of starting: at which times, as cron has them.
        due: of an entry: the next of these times.
    """

    __tablename__ = "jobs"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(128), unique=True)
    user: Mapped[str] = mapped_column(String(255))
    run: Mapped[str] = mapped_column(String(255))
    request: Mapped[str] = mapped_column(Text)
    packages: Mapped[str] = mapped_column(Text)
    bundles: Mapped[str] = mapped_column(Text)
    priority: Mapped[int]
    after: Mapped[str] = mapped_column(Text)
    seconds: Mapped[float | None]
    retries: Mapped[int]
    attempt: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(16), default=WAITING)
    stop: Mapped[bool] = mapped_column(default=False)
    yields: Mapped[float | None]
    queued: Mapped[float]
    started: Mapped[float | None]
    ended: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text, default="")
    end: Mapped[str] = mapped_column(Text, default="")
    every: Mapped[str | None] = mapped_column(String(255))
    due: Mapped[float | None]
    __table_args__ = (Index("jobs_by_state", "state", "number"),)

    @property
    def name(self) -> str:
        """The submission id of its newest attempt at the head: its own, then `ID-2`, `ID-3`."""
        return self.id if self.attempt <= 1 else f"{self.id}-{self.attempt}"


class Attempt(Base):
    """One start of a job, as an interval of use; `share` is what counts in the fair share."""

    __tablename__ = "attempts"
    job: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user: Mapped[str] = mapped_column(String(255))
    share: Mapped[float]
    gpus: Mapped[float]
    began: Mapped[float]
    ended: Mapped[float | None]


class Machine(Base):
    """A node of Ray's, from its start until it was last seen; `share` is as of an Attempt.

    Ray gives each start of a node a new id, so an interval never has a gap.
    """

    __tablename__ = "machines"
    node: Mapped[str] = mapped_column(String(64), primary_key=True)
    group: Mapped[str] = mapped_column(String(255))
    price: Mapped[float]  # $ an hour
    share: Mapped[float]
    began: Mapped[float]
    seen: Mapped[float]


class User(Base):
    """A user with a token, of which only the SHA-256 is kept; `seen` is its last sign of life."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    digest: Mapped[str] = mapped_column(String(64))
    since: Mapped[float]
    seen: Mapped[float | None]


class Run(Base):
    """Whose a run is: of the first job that named it. It outlives the records of its jobs."""

    __tablename__ = "runs"
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    user: Mapped[str] = mapped_column(String(255))


class Lease(Base):
    """The dispatcher that may start jobs, until a time; one row."""

    __tablename__ = "lease"
    name: Mapped[str] = mapped_column(String(16), primary_key=True)
    holder: Mapped[str] = mapped_column(String(64))
    until: Mapped[float]


class Fact(Base):
    """What the queue knows about itself."""

    __tablename__ = "facts"
    name: Mapped[str] = mapped_column(String(16), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
