"""A table of lines by folder, and an error where a folder outgrows its budget.

With this file one sees where the house grows: `python .ci/lines.py`. Size is a feature.
What grows must pay; to raise a budget is a decision, made in this file, in the commit
that needs it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Lines of Python and Mojo, comments and docstrings included.
BUDGETS = {
    # Many ranks 6,600, planner 1,650, lab 1,850, tracking 500, drawing 350; losses of
    # pairs, RMS and batch norm as one operation each 300; rolls, extremes, arange 70;
    # views made at once, scalars read, float64 in the GPU's bench 20; steps of writing
    # that are started before their tokens are read 90; max_pool1d as one operation 30;
    # the bench of a GPT on several GPUs 310; steps of ranks as CUDA graphs 160, an
    # optimizer that steps while gradients come 80; gradients made in buckets 70;
    # a token's step in few kernels 75; gradients of a layer together 10;
    # sums beside a backward pass by few multiprocessors 55; what a review
    # of ranks broke 70; the bench of pipelines 105; messages that are compared 70,
    # what reviews of language models and of the core broke 75; what PyTorch programs of
    # courses write 150, what to write for names that are absent 85; collectives of
    # lists 90, scatter in place 70, warnings at the user's line 25; layers and
    # functions that were still missed 900; commands that use a workspace's files, and
    # what a walk through the course showed 50; less what was said twice 120.
    # Operations on three tensors, group norm and losses as one node 310, running
    # products and medians 60, launchers of attention that two backends share 135 (less
    # in fast_ops), what a reading of the language models missed 130. More names of
    # PyTorch's 150, plans of operations in place and of images that are kept 35;
    # None is no operand 10, schedules that go on 30, names that programs of courses ask
    # for 145, what a teacher's day with the commands showed 40.
    # The compiler: programs 260, the recorder 360, compile and its modules 175,
    # its bench 95; threads that are recorded apart 100, settled memory 30; saved
    # tensors that are computed again 265, calls as CUDA graphs 450, its parts as tasks
    # 20. Weights of one byte, and int8 300. Serving: blocks and their cache 290, the
    # engine 370, HTTP 495, attention by tables 50, its bench 195, its graphs 50.
    # Adapters and losses of alignment 525.
    # What programs of d2l.ai, of PyTorch's examples and of CS336 write: layers that
    # find out their inputs 105, cells 80, names of NumPy's 55, five curves 120, ranks
    # that a program starts 65, actions by chance 75, channels and pixels 75.
    # More names of PyTorch's: L-BFGS 320,
    # packed sequences 225, decoders 205,
    # NumPy's names 25, einops 30,
    # imports that are no garbage 25, DataParallel and linear algebra 65.
    # What makes training data of raw text 740, and what steps make wrong 15.
    # Scaling laws: a text of known entropy 150, runs 195, fits 375; rows that are not
    # whole, and options that are no numbers 40; fewer runs than
    # unknowns, and sets that are equal 15. PyTorch's random numbers 250.
    # Coins, diagonals, norms by names of linalg, layers of which a few lines were
    # missing 255; tests that ran nothing 5. PyTorch's samplers, generators, and dropout
    # of attention 70.
    # Masks over parameters 310, two of four 90, rounding with feedback, a teacher 185.
    # Weights of four bits 135. Systems that cannot fork, runs in 80 columns 40,
    # classes of generators 5. Streams, orders of one's own, weights of samples 345.
    # Guesses that a large model judges, which docs had, 120; regions of a18 45.
    "minitorch": 63_410,
    # Normal numbers, remainders, short sorts; products of operands as they lie 60;
    # float16 by the processor's instructions, batch norm at rest 90; machine code of
    # what is called alone 115. Medians by selection 110, three operands 70; a tile that
    # reads no further than its columns 60.
    # Programs as one loop 275, ends of lines of honest work 20, array expressions 20,
    # little attention 20, its parts as tasks 20. Weights of one byte 100.
    # Attention by tables 115. Weights of four bits 155. Threads that spin briefly 25.
    # Less types that say nothing, 75.
    "fast_ops": 8_290,
    # Half types, x-rays, ten puzzles; layers of few rows 500; losses, norms and
    # statistics in one launch 550; attention on wgmma 760; sums that begin with a
    # bias 60; in-place operations in one launch 150; GPT's step in fewer launches 240;
    # products of halves through the copy engine 530; kernels that begin while the one
    # before ends 100; tokens that a graph hands on, caches that a product writes 160;
    # rows at any address, 16 bytes at a time 190; attention's gradients in one pass
    # 460; ranks that compile once, students' kernels called as they are 60; graphs
    # several times in a row, buckets filled at once 45; products that are written into
    # buckets 20; a token's step in few kernels, keys that are read early, clusters,
    # what comes to the cache 260; sums of rows beside products, and their cuts 200;
    # float32 as three bfloat16 350, halves without warpgroups 110, convolutions of
    # halves 640; no more blocks than turns need 5; elements that are overwritten 70,
    # few slices added at once 30; copies that compilers can spare 20, the simulator's
    # turns 10. Medians by counting, running products 100; three operands 125;
    # long sums that lose less 20; float64 on tensor cores 75; copies of
    # a few channels 85, small products 10; copies that are under way 105.
    # Programs as one kernel 545, copies that are under way in the simulator 110; keys
    # that are found by tables 65.
    # Wide weights for few rows 205. What layouts decide, decided once 40.
    # Layers of few rows in halves on tensor cores 310; keys of texts that a block
    # walks along 190.
    # What a kernel needs, read from its code where the assembler's log is lost 35. A
    # row that stays in registers beside a long loop 5. Weights of four bits 140; whole
    # numbers beside few rows on tensor cores 180.
    "cuda_ops": 32_370,
    # Attention 700, int8 20; less operators and types that are found in tables 155.
    "mojo_ops": 8_235,
    # Sixteen; one executor; 70 pictures by programs; what spares graders work 40;
    # words of a failing check on what it calls, and where errors come from 90;
    # attention by the backend's launchers 10; what students and teachers met who took
    # the course by its pages 90; what solutions in other styles met 35.
    # What is done on all cores, by each thread, in a tree 215; honest styles 190;
    # a compiler 1,445, alignment 1,105, data 1,240, scaling laws 740, compression 930;
    # what a student of a7, a8, a12 and a13 met 225, and what else that opened 10.
    # What one of them allows beside the others 25; less what calls share 70.
    # Serving 950. Edges of a16 and a17 that wrong solutions got away with 50.
    "assignments": 32_640,
    # The book, programs for ncu and racecheck; weights of one byte 105;
    # GRPO 75, a text that is cleaned 90, scaling laws 90, weights of four bits 15.
    "docs": 1_555,
    # What saves compilations in tests of kernels 40; a hundred submissions through the
    # installed script 100, and mutants of Mojo 30; speeds that are measured again 45;
    # PyTorch's OpenMP 20; processes that count functions apart 30; graphs that hand
    # on their tokens 35; rows at any address, and their launches 40; parts of
    # attention's gradients 95; layouts on four GPUs, processes that a grading leaves,
    # what a review broke 190; ranks whose steps are graphs, and what a second review
    # broke 500; gradients made in buckets 290; graders that come last 12; gradients of
    # biases that come with weights' 65; sums beside a backward pass 55, what
    # a review of ranks broke 120; the bench of pipelines 15; messages that are compared
    # 85, what reviews of language models and of the core broke 205, what PyTorch
    # programs of courses write 185, a third review of ranks 110, layers and functions
    # that were still missed 660, a walk through the course 80, machine code of what is
    # called alone 150; products, medians, three operands, language models 360; errors
    # beside PyTorch's 200, names of PyTorch's 145, a review 40; copies 30, None
    # as an operand 30, a review 25; modules beside PyTorch's 70, and what students,
    # teachers and programs of courses met 220, solutions in other styles 30; copies
    # that are under way 160.
    # The compiler 1,320, honest and wrong solutions 730, those of a compiler 155.
    # Weights of one byte 350. Serving 850, alignment 565, what products enter 15.
    # Lazy layers, cells, names of NumPy's and what else programs of d2l.ai write 280.
    # PTX that is run without a GPU 1,685, code without its log 20.
    # More names of PyTorch's: L-BFGS 280, packed sequences 145, decoders 150, NumPy's
    # names 35, einops 90, imports that are no garbage 20, DataParallel 20.
    # Cleaning of texts 435, wrong solutions to a15 260. Scaling laws 450. A review 85.
    # Fewer combinations, and a lock's owner 65. PyTorch's random numbers 185,
    # a notebook 60. What one assignment allows 30, fewer runs than unknowns, equal sets
    # 20, coins, diagonals, norms and layers 145, tests that ran nothing 15.
    # Masks, rounding and a teacher 510, wrong solutions to a17 165. Weights of four
    # bits 245. PyTorch's sequence in attention and samplers 115. How
    # threads wait 20. Generators' states and forks, sizes by name 15; less what several
    # files defined 125. Narrow vectors, runs in a terminal 85; what a student met 110,
    # what that opened 25, classes of generators and long names of runs 30. Orders and
    # streams 250. Wrong solutions to a18 140, honest ones 30; those of a16 and a17 that
    # passed at first 85, edges of samplers 20.
    "tests": 69_180,
}


LONGEST = 700  # lines of a file outside tests


def count(folder: str) -> dict[str, int]:
    """Lines of each file in a folder that git knows."""
    names = subprocess.run(
        ["git", "ls-files", f"{folder}/*.py", f"{folder}/*.mojo"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return {name: len(Path(name).read_text("utf-8").splitlines()) for name in names}


def main() -> int:
    """Print the table; 1 where a folder is over its budget."""
    over, long = [], []
    print(f"{'folder':12}{'lines':>8}{'budget':>8}")
    for folder, budget in BUDGETS.items():
        files = count(folder)
        lines = sum(files.values())
        if folder != "tests":
            long += [(n, name) for name, n in files.items() if n > LONGEST]
        print(f"{folder:12}{lines:8,}{budget:8,}")
        if lines > budget:
            over.append(f"{folder} has {lines - budget:,} lines more than its budget")
    for line in over:
        print(
            f"{line}: take something out, or raise BUDGETS in .ci/lines.py and say why"
        )
    for lines, name in long:
        print(f"{name} has {lines} lines; split it: {LONGEST} is the most")
    return bool(over or long)


if __name__ == "__main__":
    sys.exit(main())
