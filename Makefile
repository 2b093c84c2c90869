# The book: `pip install -e '.[book]'`, then `make book`, or the line below it by hand.
# `make pdf` also prints it, with Chromium.
SPHINX = python -m sphinx -c docs/book -d build/doctrees -W --keep-going
CHROMIUM = chromium --headless --no-sandbox --disable-gpu

book:
	$(SPHINX) -E -b html . build/book

pdf: book
	$(SPHINX) -b singlehtml -D html_theme=basic . build/onepage
	cp build/onepage/docs/book/index.html build/onepage/book.html
	$(CHROMIUM) --no-pdf-header-footer --generate-pdf-document-outline \
	    --print-to-pdf=build/minitorch.pdf \
	    "file://$(CURDIR)/build/onepage/book.html"

.PHONY: book pdf
