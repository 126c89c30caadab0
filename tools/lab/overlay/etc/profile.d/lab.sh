echo "A lab host of pinner. Leave it with: poweroff (or Ctrl-a x)"
