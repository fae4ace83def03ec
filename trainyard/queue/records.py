"""The queue's durable records: each change is one transaction, on disk before it returns.

The database is a file of SQLite, or PostgreSQL. Changes of a job's state name the state that they
begin from, so of two writers one changes nothing.
"""

import hmac
import json
import math
import secrets
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import (
    Connection,
    create_engine,
    delete,
    event,
    func,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from trainyard.failpoints import reach
from trainyard.queue.ledger import JobUse, MachineUse, billed, month
from trainyard.queue.models import (
    ACTIVE,
    RUNNING,
    STARTING,
    STOPPED,
    WAITING,
    Attempt,
    Fact,
    Job,
    Lease,
    Machine,
    Run,
    User,
)
from trainyard.queue.users import MOST, Caller, UsersError

MOST_WAITING = 10_000
MOST_ENDED = 10_000  # kept
KEPT_S = 90 * 86_400.0
LISTED = 1000  # of those that ended
WEEK_S = 7 * 86_400.0
HALF_LIVES = 8  # after which use counts as none
MIGRATIONS = Path(__file__).with_name("migrations")
LOCK = 0x747261696E  # of PostgreSQL, while tables change
BUSY_S = 30
SEEN_S = 60.0  # between two notes of a user's sign of life


class ExistsError(Exception):
    """A job has this id."""


class FullError(Exception):
    """As many jobs wait as may."""


class TakenError(Exception):
    """A run is another user's; the text is its name."""


class Records:
    """The records in a database, made or brought up to date; every method may raise its errors."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, pool_pre_ping=True)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            with Session(connection) as session:
                known = session.get(Fact, "id")
                if known is None:
                    known = Fact(name="id", value=f"queue_{secrets.token_hex(8)}")
                    session.add_all([known, Lease(name="dispatcher", holder="", until=0.0)])
                    session.flush()
                self.id = known.value

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def add(
        self,
        job: Job,
        runs: Collection[str] = (),
        *,
        own: bool = False,
        entry: Job | None = None,
        due: float | None = None,
    ) -> None:
        """Keep a new job, and whose its runs are; with `own` they must not be of others.

        Not if the entry that makes it has made it: that is due next at `due`.

        Raises:
            ExistsError: one has its id; with `own` also if an attempt has or could get it.
            FullError: MOST_WAITING wait.
            TakenError: a run is another user's.
        """
        reach("queue.add")
        try:
            with self._session() as session, session.begin():
                waiting = select(func.count()).where(Job.state == WAITING)
                if (session.scalar(waiting) or 0) >= MOST_WAITING:
                    raise FullError
                if entry is not None:
                    same = (Job.id == entry.id, Job.state == WAITING, Job.due == entry.due)
                    done = session.connection().execute(update(Job).where(*same).values(due=due))
                    if done.rowcount != 1:
                        return
                if own and any(each.user != job.user for each in _near(session, job.id)):
                    raise ExistsError
                for name in runs:
                    known = session.get(Run, name)
                    if known is None:
                        session.add(Run(name=name, user=job.user))
                    elif own and known.user != job.user:
                        raise TakenError(name)
                reach("queue.insert")
                session.add(job)
        except IntegrityError:
            if self.get(job.id) is not None:
                raise ExistsError from None
            # Another job has named its run at the same moment.
            self.add(job, runs, own=own, entry=entry, due=due)
            return
        reach("queue.added")

    def get(self, job: str) -> Job | None:
        """Return a job by its id."""
        with self._session() as session:
            return session.scalar(select(Job).where(Job.id == job))

    def due(self, now: float) -> list[Job]:
        """Return the entries whose time has come."""
        with self._session() as session:
            return [*session.scalars(_active().where(Job.due <= now))]

    def put_off(self, entry: Job, due: float) -> None:
        """Have an entry make its next job at a time."""
        self._change(entry, due=due)

    def active(self) -> list[Job]:
        """Return the jobs that have not ended, without their requests, in order of submission."""
        with self._session() as session:
            light = _active().options(defer(Job.request, raiseload=True))
            return [*session.scalars(light.order_by(Job.number))]

    def listed(self, user: str = "") -> list[Job]:
        """Return the jobs that have not ended, and the last that have; of all users, or of one."""
        mine = Job.user == user if user else true()
        with self._session() as session:
            past = select(Job).where(Job.state.not_in(ACTIVE), mine).order_by(Job.number.desc())
            return [*session.scalars(_active().where(mine)), *session.scalars(past.limit(LISTED))]

    def begin(self, job: Job, now: float, share: float, gpus: float) -> bool:
        """Record that a waiting job starts, before the head is asked; whether it is ours to start.

        The job has the new attempt then, which counts `share` GPUs in its user's use.
        """
        reach("queue.start")
        number = job.attempt + 1
        interval = Attempt(
            job=job.id, attempt=number, user=job.user, share=share, gpus=gpus, began=now
        )
        mine = self._change(job, interval, state=STARTING, attempt=number, started=now)
        reach("queue.starting")
        return mine

    def running(self, job: Job) -> None:
        """Record that the head has a job."""
        self._change(job, state=RUNNING)
        reach("queue.running")

    def requeue(self, job: Job, now: float) -> None:
        """Have a job wait again that its head has lost, or that made room for another."""
        reach("queue.requeue")
        left = job.retries - (job.yields is None)
        self._change(job, now, state=WAITING, retries=left, yields=None)

    def ask_to_yield(self, job: Job, now: float, why: str = "") -> None:
        """Record that a running job is asked to end; to make room, or for good if it says why."""
        self._change(job, yields=now, reason=why)

    def finish(self, job: Job, state: str, reason: str, now: float, end: object = None) -> None:
        """Record how a job ended, with what the head said of it."""
        reach("queue.end")
        said = json.dumps(end) if end else ""
        self._change(job, now, state=state, reason=reason, ended=now, end=said)
        reach("queue.ended")

    def _change(self, job: Job, interval: Attempt | float | None = None, **values: Any) -> bool:
        """Change a job that nobody has changed; whether it was so.

        With the change an interval of its use begins, or the open one ends at a time.
        """
        same = (Job.id == job.id, Job.state == job.state, Job.attempt == job.attempt)
        with self._session() as session, session.begin():
            done = session.connection().execute(update(Job).where(*same).values(**values))
            if done.rowcount != 1:
                return False
            if isinstance(interval, Attempt):
                session.add(interval)
            elif interval is not None:
                is_open = (Attempt.job == job.id, Attempt.ended.is_(None))
                session.execute(update(Attempt).where(*is_open).values(ended=interval))
        for name, value in values.items():
            setattr(job, name, value)
        return True

    def ask_stop(self, job: str, now: float) -> str | None:
        """Record that somebody asks for a job's end; one that waits has ended then.

        Returns its state before; None without such a job.
        """
        with self._session() as session, session.begin():
            found = session.scalar(select(Job).where(Job.id == job).with_for_update())
            if found is None:
                return None
            before = found.state
            if before == WAITING:
                found.state, found.ended = STOPPED, now
                found.reason = "it was stopped" + ("" if found.every else " before it started")
            elif before in ACTIVE:
                found.stop = True
            return before

    def remove(self, job: str) -> None:
        """Forget a job that has ended."""
        with self._session() as session, session.begin():
            gone = select(Job.id).where(Job.id == job, Job.state.not_in(ACTIVE))
            session.execute(delete(Attempt).where(Attempt.job.in_(gone.scalar_subquery())))
            session.execute(delete(Job).where(Job.id == job, Job.state.not_in(ACTIVE)))

    def lease(self, holder: str, now: float, seconds: float) -> bool:
        """Take or keep the right to start jobs for some seconds; whether it is the holder's."""
        free = or_(Lease.holder == holder, Lease.until < now)
        with self._session() as session, session.begin():
            taken = update(Lease).where(free).values(holder=holder, until=now + seconds)
            return session.connection().execute(taken).rowcount == 1

    def use(self, now: float, half_life_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return each user's use in GPU-seconds, of which half counts after each half-life.

        The second one is each user's GPU-hours of the last seven days.
        """
        since = now - max(HALF_LIVES * half_life_s, WEEK_S)
        columns = (Attempt.user, Attempt.share, Attempt.gpus, Attempt.began, Attempt.ended)
        recent = or_(Attempt.ended.is_(None), Attempt.ended > since)
        used, week = defaultdict[str, float](float), defaultdict[str, float](float)
        with self._session() as session:
            for user, share, gpus, began, ended in session.execute(select(*columns).where(recent)):
                until = ended or now
                used[user] += share * decayed(now - began, now - until, half_life_s)
                week[user] += gpus * max(0.0, until - max(began, now - WEEK_S)) / 3600
        return used, week

    def see(self, machines: Sequence[Machine]) -> None:
        """Keep when machines began, and how long they were seen."""
        with self._session() as session, session.begin():
            for each in machines:
                known = session.get(Machine, each.node)
                if known is None:
                    session.add(each)
                else:  # of one that has ended, Ray says no more what it had
                    known.seen = max(known.seen, each.seen)

    def machines(self, since: float, until: float) -> list[MachineUse]:
        """Return the machines that were there between two times."""
        found = select(Machine).where(Machine.seen > since, Machine.began < until)
        with self._session() as session:
            return [
                MachineUse(each.node, each.began, each.seen, each.price, each.share)
                for each in session.scalars(found)
            ]

    def uses(self, since: float, until: float) -> tuple[list[JobUse], dict[str, Job]]:
        """Return how jobs ran between two times, and these jobs by their ids."""
        there = or_(Attempt.ended.is_(None), Attempt.ended > since)
        found = select(Attempt, Job).join(Job, Job.id == Attempt.job)
        found = found.options(defer(Job.request, raiseload=True))
        with self._session() as session:
            rows = session.execute(found.where(there, Attempt.began < until)).all()
        used = [JobUse(job.id, each.began, each.ended or until, each.share) for each, job in rows]
        return used, {job.id: job for _, job in rows}

    def add_users(self, digests: Mapping[str, str], role: str, now: float) -> None:
        """Keep new users with the digests of their tokens; UsersError if a name is taken."""
        with self._session() as session, session.begin():
            known = {*session.scalars(select(User.name))}
            if taken := sorted(known & digests.keys()):
                raise UsersError(
                    f"{', '.join(taken)[:200]}: a user has this name, and keeps the token: remove "
                    "the user first (`train user rm`), or give another name"
                )
            if len(known) + len(digests) > MOST:
                raise UsersError(f"more than {MOST} users: remove some first (`train user rm`)")
            session.add_all(
                User(name=name, role=role, digest=each, since=now) for name, each in digests.items()
            )

    def remove_users(self, names: Collection[str], roles: Collection[str]) -> None:
        """End the tokens of users who have one of some roles; UsersError for any other name."""
        with self._session() as session, session.begin():
            chosen = User.name.in_(names), User.role.in_(roles)
            if other := {*names} - {*session.scalars(select(User.name).where(*chosen))}:
                raise UsersError(
                    f"{', '.join(sorted(other))[:200]}: no user of this name that you may remove: "
                    "`train user list` shows them"
                )
            session.execute(delete(User).where(*chosen))

    def runs(self, user: str) -> set[str]:
        """Return the names of a user's runs."""
        with self._session() as session:
            return {*session.scalars(select(Run.name).where(Run.user == user))}

    def users(self) -> list[User]:
        """Return all users, by name."""
        with self._session() as session:
            return [*session.scalars(select(User).order_by(User.name))]

    def caller(self, digest: str, now: float) -> Caller | None:
        """Return whose token has a digest, and note that this user is there; None if nobody's."""
        with self._session() as session, session.begin():
            columns = select(User.name, User.role, User.digest, User.seen)
            for name, role, known, seen in session.execute(columns).all():
                if hmac.compare_digest(known, digest):
                    if now - (seen or 0.0) > SEEN_S:
                        session.execute(update(User).where(User.name == name).values(seen=now))
                    return Caller(name, role)
        return None

    def spent(self, now: float) -> float:
        """Return what the machines have cost this month, in $."""
        begun = month(now)
        return billed(self.machines(begun, now), begun, now)

    def prune(self, now: float) -> set[str]:
        """Forget old jobs that have ended; return the names of packages that others need."""
        past = Job.state.not_in(ACTIVE)
        with self._session() as session, session.begin():
            kept = select(Job.number).where(past).order_by(Job.number.desc())
            oldest = session.scalar(kept.offset(MOST_ENDED).limit(1)) or 0
            old = past & or_(Job.ended < now - KEPT_S, Job.number <= oldest)
            ids = select(Job.id).where(old).scalar_subquery()
            session.execute(delete(Attempt).where(Attempt.job.in_(ids)))
            session.execute(delete(Job).where(old))
            session.execute(delete(Machine).where(Machine.seen < now - KEPT_S))
            needed = session.scalars(select(Job.packages).where(Job.state.in_(ACTIVE)))
            return {name for each in needed for name in json.loads(each)}

    def _session(self) -> Session:
        return Session(self._engine, expire_on_commit=False)


def decayed(first: float, last: float, half_life: float) -> float:
    """Return the seconds of an interval that began and ended so long ago, as far as they count."""
    rate_ = math.log(2) / half_life
    return (math.exp(-rate_ * max(last, 0.0)) - math.exp(-rate_ * max(first, 0.0))) / rate_


def _near(session: Session, name: str) -> list[Job]:
    """Return jobs of which an attempt has the name of a job, or the other way round."""
    base, _, number = name.rpartition("-")
    ends = select(Job).where(Job.id.startswith(f"{name}-", autoescape=True))
    found = [each for each in session.scalars(ends) if each.id[len(name) + 1 :].isdecimal()]
    if number.isdecimal():
        found += session.scalars(select(Job).where(Job.id == base))
    return found


def _active() -> Any:
    return select(Job).where(Job.state.in_(ACTIVE))


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin as `_begin_sqlite` says
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute(f"PRAGMA busy_timeout={BUSY_S * 1000}")


def _begin_sqlite(connection: Connection) -> None:
    # At once for writing: one that reads first may not write when another has written meanwhile.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
