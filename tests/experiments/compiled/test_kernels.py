"""Bundles of kernels: loops, and the files that the compiler writes."""

import pytest

from experiments.compiled import kernels
from transformer.config import ConfigError

# A loop of three trips, in which one of five is; branches are marked, and count as all other bundles.
PROGRAM = """
LB: loop body
     0   :  { %s1 = inlined_call_operand.vmem [shape: bf16[2,16,128], index: 0] }
   0x1 LB: > { %2 = sphi 0 }
   0x2   : >> { %3 = vadd %1 }
   0x3   : >> { %4 = vadd %3  ;;  %5 = scmp.ge.s32.totalorder %s4, 5 /* loop exit test */ }
   0x4 PF: > { %6 = sbr.rel (%5) target = $region1 }
   0x5   : > { %7 = scmp.ge.s32.totalorder %s5, 3 /* loop exit test */ }
   0x6   :  { %8 = sbr.rel (!%7) target = $region2 }
   0x7   :  { %9 = sdone }
"""


def write(folder, name, call):
    (folder / f'17-{name}-64-schedule-analysis_final_bundles.txt').write_text(call)
    (folder / f'17-{name}-65-final_bundles.txt').write_text(PROGRAM)


def test_bundles_of_loops():
    assert kernels.bundles(PROGRAM) == 3 + 3 * (3 + 5 * 2)


def test_only_kernels_are_read(tmp_path):
    call = 'custom_call_target="tpu_custom_call"'
    for name, text in {'copy.1': 'copy()', 'TLP': call, 'short_attention_means.1': call}.items():
        write(tmp_path, name, text)
    assert kernels._read(tmp_path) == {'short_attention_means.1': 42} and not [*tmp_path.iterdir()]
    with pytest.raises(ConfigError):
        kernels._read(tmp_path)
