# The book: `pip install -e '.[book]'`, then `make book`, or the line below it by hand.
# `make pdf` prints it with Chromium.
SPHINX = python -m sphinx -c docs/book -E -W --keep-going
CHROMIUM = chromium --headless --no-sandbox --disable-gpu

book:
	$(SPHINX) -b html . build/book

pdf:
	$(SPHINX) -b singlehtml -D html_theme=basic . build/onepage
	cp build/onepage/docs/book/index.html build/onepage/book.html
	$(CHROMIUM) --no-pdf-header-footer --generate-pdf-document-outline \
	    --print-to-pdf=build/minitorch.pdf \
	    "file://$(CURDIR)/build/onepage/book.html"

.PHONY: book pdf
