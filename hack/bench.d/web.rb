# SPDX-License-Identifier: Apache-2.0
# frozen_string_literal: true

# The requests of a small shop, one after the other, as a framework handles them: middleware, router, controller,
# repository, template.
# usage: web.rb SECONDS
module Shop
  Item = Struct.new(:name, :price)
  Request = Struct.new(:path, :query)

  # Stores the items.
  class Repository
    def initialize
      @items = (0...60).map { |i| Item.new("item #{i}", i * 37 % 101) }
    end

    def cheapest(below)
      @items.select { |item| cheaper?(item, below) }.sort { |a, b| compare(a, b) }
    end

    private

    def cheaper?(item, below)
      item.price < below
    end

    def compare(one, other)
      order = one.price <=> other.price
      order.zero? ? one.name <=> other.name : order
    end
  end

  # Renders a page of items.
  class Template
    def page(items)
      "<table>#{items.map { |item| row(item) }.join}</table>"
    end

    def row(item)
      cells([escape(item.name), escape(item.price.to_s)])
    end

    private

    def cells(texts)
      out = +"<tr>"
      texts.each { |text| out << cell(text) }
      out << "</tr>"
    end

    def cell(text)
      "<td>#{text}</td>"
    end

    def escape(text)
      text.gsub(/[<>& ]/) { |c| "&##{c.ord};" }
    end
  end

  # Handles the request for a path.
  class Controller
    def initialize
      @repository = Repository.new
      @template = Template.new
    end

    def list(request)
      @template.page(@repository.cheapest(request.query[:below]))
    end
  end

  # Middleware and router.
  class Kernel
    def initialize
      @controller = Controller.new
      @middleware = %i[log session authorize cache]
    end

    def handle(request, at = 0)
      return route(request) if at == @middleware.size
      send(@middleware[at], request) { |r| handle(r, at + 1) }
    end

    private

    def log(request)
      yield request
    end
    alias session log
    alias authorize log
    alias cache log

    def route(request)
      @controller.public_send(request.path.delete_prefix("/"), request)
    end
  end
end

finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Float(ARGV[0])
kernel = Shop::Kernel.new
n = 0
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
  kernel.handle(Shop::Request.new("/list", { below: n % 100 }))
  n += 1
end
