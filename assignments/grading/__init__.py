"""The grader: what a teacher runs on files that may be wrong, broken or hostile.

With this package one can grade a submission (`grade.grade`), a folder of them
(`batch.grade_all`), and make what a course hands out (`release.release`). The parts:

    sandbox.py     starts a process that sees, and can use up, as little as possible
    worker.py      what runs in that process: the student's code, one call at a time
    wire.py        the values that cross, as bytes that cannot carry code
    channel.py     the grader's end of a worker
    executor.py    runs a task's checks in workers, for a grader and for a student
    library.py     the library without the solutions, with a student's files in it
    processes.py   all processes of a worker, counted, stopped and ended as one
    submission.py  opens a folder or a zip that a student handed in
    intake.py      does that and reads the code
    apart.py       the process with limits in which students' texts are read
    allowed.py     what every task allows, as lists
    uses.py        what a piece of Python uses, by meaning and not by spelling
    policy.py      what a student's file uses beyond what its task allows
    reading.py     the same for whole workspaces, for the grader and `minitorch test`
    earlier.py     work on other assignments that is carried along
    examine.py     checks and properties;  timing.py  speed;  grade.py  points
    report.py      table, results.json, JUnit XML, CSV

docs/grading.md says what is promised, and what is not.
"""
