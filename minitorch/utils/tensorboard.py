"""Where PyTorch programs look for a `SummaryWriter`: that of the package tensorboardX,
which `pip install -e '.[tracking]'` installs."""

from tensorboardX import SummaryWriter as SummaryWriter
