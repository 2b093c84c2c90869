"""Share the work of a kernel among threads.

With this file a kernel can run a loop on all cores:

    @fieldwise_init
    struct Double(Kernel):
        var a: Buffer[DType.float32]

        def run(self, task: Int):        # task is 0, 1, ..., tasks - 1
            ...

    parallel_for(Team(team), tasks, Double(a))

The team is a chunk of memory that `bridge.py` owns and passes to every kernel, with one
word for each thing that the threads share (`Team`). Its threads start at the first loop
that needs them, and wait for the next job: for `SPINS` turns with open eyes, then
asleep.

A job is open while its door is: `door` counts the threads inside, and lies far below 0
while it is closed. A thread that comes late finds it closed and touches nothing, so
the caller never waits for one that has yet to wake up. Threads take the next task by
adding 1 to a counter, so which thread does a task differs from run to run; what a task
computes must not depend on it.

After `fork()` a child has the memory but not the threads. `bridge.py` clears the words
then, and the first loop starts new ones.
"""

from std.atomic import Atomic, Ordering
from std.ffi import external_call
from std.sys import CompilationTarget, llvm_intrinsic

from bridge import Address, Object, Table, address_of, fail, raise_in_python

comptime Task = def(Team, Address, Int) thin -> None  # and a kernel, and its number
comptime Word = Pointer[Int, MutUntrackedOrigin]
comptime CLOSED = 1 << 32  # taken from the door by the caller, to close it
comptime MESSAGE_BYTES = 256
comptime SPINS = 1000  # turns of about 20 ns before a thread goes to sleep


struct Team(TrivialRegisterPassable):
    """The words that all threads share, each group in a cache line of its own."""

    var words: Word

    comptime THREADS = 0  # how many take part, the caller among them
    comptime STARTED = 1  # how many wait for jobs
    comptime BUSY = 8  # 1 while a caller owns the team
    comptime JOB = 16  # number of the job, counted up
    comptime BODY = 17  # what to call: a `Task`,
    comptime CONTEXT = 18  # with this,
    comptime TASKS = 19  # and 0 to TASKS - 1
    comptime NEXT = 24  # the next task that nobody took
    comptime DOOR = 32  # threads inside, minus CLOSED when closed
    comptime ASLEEP = 40  # threads that wait for CONDITION
    comptime FAILED = 41  # 1 once a task has raised an error, whose text is at MESSAGE
    comptime MUTEX = 48  # a pthread_mutex_t, at most 64 bytes
    comptime CONDITION = 56  # a pthread_cond_t, at most 64 bytes
    comptime MESSAGE = 64  # up to MESSAGE_BYTES bytes

    @always_inline
    def __init__(out self, team: Object):
        """The team in the array that Python passes to each kernel."""
        self.words = address_of(team).unsafe_bitcast[Int]()

    @always_inline
    def __init__(out self, words: Word):
        self.words = words

    @always_inline
    def get(self, word: Int) -> Int:
        return Atomic[Int].load(self.words.unsafe_offset(word))

    @always_inline
    def set(self, word: Int, value: Int):
        Atomic[Int].store(self.words.unsafe_offset(word), value)

    @always_inline
    def add(self, word: Int, value: Int) -> Int:
        """Add to a word; what it was before."""
        return Atomic[Int].fetch_add(self.words.unsafe_offset(word), value)

    @always_inline
    def acquire(self) -> Bool:
        """Become the caller whose loop runs, unless there is one."""
        if self.add(Self.BUSY, 1) == 0:
            return True
        _ = self.add(Self.BUSY, -1)
        return False

    @always_inline
    def at(self, word: Int) -> Address:
        return self.words.unsafe_offset(word).unsafe_bitcast[NoneType]()


    def report(self, error: Error):
        """Keep the text of the first error, for the caller to raise."""
        if self.add(Self.FAILED, 1) != 0:
            return
        var text = String(error)
        var bytes = text.as_bytes()
        var to = self.at(Self.MESSAGE).unsafe_bitcast[UInt8]()
        var count = min(len(bytes), MESSAGE_BYTES - 1)
        for i in range(count):
            to[unsafe_offset=i] = bytes[i]
        to[unsafe_offset=count] = 0

    def raise_reported(self):
        """Raise in Python what a task has reported."""
        if self.get(Self.FAILED) != 0:
            self.set(Self.FAILED, 0)
            raise_in_python(self.at(Self.MESSAGE))


@always_inline
def pause():
    """Tell the core that this is a waiting loop."""
    comptime if CompilationTarget.is_x86():
        llvm_intrinsic["llvm.x86.sse2.pause", NoneType]()


# ------------------------------------------------------------------------ the threads


def take_tasks(team: Team):
    """Do tasks of the open job until there are none left."""
    var word = team.words[unsafe_offset=Team.BODY]
    var body = Pointer(to=word).unsafe_bitcast[Task]()[]
    var context = team.words.unsafe_offset(Team.CONTEXT).unsafe_bitcast[Address]()[]
    var tasks = team.words[unsafe_offset=Team.TASKS]
    var task = team.add(Team.NEXT, 1)
    while task < tasks:
        body(team, context, task)
        task = team.add(Team.NEXT, 1)
    _ = word


def wait_for_job(team: Team, seen: Int) -> Int:
    """Wait until the job is another than number `seen`; its number."""
    for _ in range(SPINS):
        var job = team.get(Team.JOB)
        if job != seen:
            return job
        pause()
    _ = external_call["pthread_mutex_lock", Int32](team.at(Team.MUTEX))
    _ = team.add(Team.ASLEEP, 1)
    while team.get(Team.JOB) == seen:
        _ = external_call["pthread_cond_wait", Int32](
            team.at(Team.CONDITION), team.at(Team.MUTEX)
        )
    _ = team.add(Team.ASLEEP, -1)
    _ = external_call["pthread_mutex_unlock", Int32](team.at(Team.MUTEX))
    return team.get(Team.JOB)


def worker(address: Address) abi("C") -> Address:
    """The life of a thread: wait for a job, help with it, wait for the next."""
    var team = Team(address.unsafe_bitcast[Int]())
    var seen = 0
    while True:
        seen = wait_for_job(team, seen)
        if team.add(Team.DOOR, 1) >= 0:
            take_tasks(team)
        _ = team.add(Team.DOOR, -1)


def start(team: Team, threads: Int):
    """Start threads until `threads` work, the caller being one."""
    comptime Start = def(Address) abi("C") thin -> Address
    var function: Start = worker
    if team.get(Team.STARTED) == 0:
        _ = external_call["pthread_mutex_init", Int32](team.at(Team.MUTEX), 0)
        _ = external_call["pthread_cond_init", Int32](team.at(Team.CONDITION), 0)
        team.set(Team.DOOR, -CLOSED)
        team.set(Team.JOB, 0)
    while team.get(Team.STARTED) < threads - 1:
        var id = 0
        var failed = external_call["pthread_create", Int32](
            Pointer(to=id), 0, function, team.words
        )
        if failed != 0:
            return  # fewer threads do the same tasks
        _ = external_call["pthread_detach", Int32](id)
        _ = team.add(Team.STARTED, 1)


# --------------------------------------------------------------------------- the caller


trait Kernel(TrivialRegisterPassable):
    """Work that is cut into tasks: the fields are what a task needs to know."""

    def run(self, task: Int) raises:
        """Do task number `task`; called once for each, by any thread."""
        ...


def call_kernel[K: Kernel](team: Team, context: Address, task: Int):
    """Run one task of the kernel that lies at `context`."""
    try:
        context.unsafe_bitcast[K]()[].run(task)
    except error:
        team.report(error)


def parallel_for[
    K: Kernel
](team: Team, tasks: Int, kernel: K, serial: Bool = False):
    """Do tasks 0 to tasks - 1 of a kernel on all threads of the team.

    The caller helps. If the team is busy with the loop of another Python thread, or the
    work is so small that it is `serial`, the caller does all of it by itself. Other
    Python threads run in the meantime.
    """
    var threads = team.get(Team.THREADS)
    if serial or tasks <= 1 or threads <= 1 or not team.acquire():
        try:
            for task in range(tasks):
                kernel.run(task)
        except error:
            fail(error)
        return
    var state = external_call["PyEval_SaveThread", Address]()
    if team.get(Team.STARTED) < threads - 1:
        start(team, threads)
    var shared = kernel
    var call: Task = call_kernel[K]
    team.words[unsafe_offset=Team.BODY] = Pointer(to=call).unsafe_bitcast[Int]()[]
    team.words[unsafe_offset=Team.CONTEXT] = Int(Pointer(to=shared))
    team.words[unsafe_offset=Team.TASKS] = tasks
    team.set(Team.NEXT, 0)
    run_job(team)
    _ = shared  # it must live until here: the threads read it
    external_call["PyEval_RestoreThread", NoneType](state)
    team.raise_reported()
    _ = team.add(Team.BUSY, -1)


@always_inline
def next_task(counter: Table) -> Int:
    """For workers with memory of their own: the next task that nobody took."""
    return Atomic[Int].fetch_add(counter.address().unsafe_bitcast[Int](), 1)


def run_job(team: Team):
    """Open the door, wake who sleeps, help, close the door, and wait till all left."""
    _ = team.add(Team.DOOR, CLOSED)
    _ = team.add(Team.JOB, 1)
    if team.get(Team.ASLEEP) > 0:
        _ = external_call["pthread_mutex_lock", Int32](team.at(Team.MUTEX))
        _ = external_call["pthread_cond_broadcast", Int32](team.at(Team.CONDITION))
        _ = external_call["pthread_mutex_unlock", Int32](team.at(Team.MUTEX))
    take_tasks(team)
    _ = team.add(Team.DOOR, -CLOSED)
    var turns = 0
    while team.get(Team.DOOR) != -CLOSED:
        turns += 1
        if turns > SPINS:
            _ = external_call["sched_yield", Int32]()
        pause()
